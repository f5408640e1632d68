//! Interpretation of pickles: numpy arrays, scipy matrices, adjacency lists.

use super::{Global, Node, Pickle, Value};
use crate::build::EdgeSource;
use crate::error::{Error, Result};
use crate::io::npy::{Array, Bytes, DType, Header};

/// An unchecked `scipy.sparse.csr_matrix`.
pub struct CsrMatrix {
    /// Row starts.
    pub indptr: Array,
    /// Column of each entry.
    pub indices: Array,
    /// Value of each entry.
    pub data: Array,
    /// Stated numbers of rows and columns.
    pub shape: [usize; 2],
}

impl Pickle {
    fn wrong(&self, what: &str) -> Error {
        Error::input(&self.name, format!("no {what} where one is needed"))
            .help("the file was not written by Planetoid's tools, or has the wrong name")
    }

    fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(id) => self.nodes.get(id as usize),
            _ => None,
        }
    }

    fn tuple(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::Tuple(items) => Some(items),
            _ => None,
        }
    }

    fn text(&self, value: Value) -> Option<&[u8]> {
        match self.node(value)? {
            Node::Bytes(range) => self.map.get(range.clone()),
            _ => None,
        }
    }

    /// Returns the arguments and the state of an object of `class`.
    fn object(&self, value: Value, wanted: Global) -> Option<(Value, Value)> {
        match self.node(value)? {
            Node::Object { class, args, state: Some(state) } if *class == wanted => Some((*args, *state)),
            _ => None,
        }
    }

    /// Interprets the pickle as an array.
    pub fn array(&self) -> Result<Array> {
        self.array_at(self.root, self.name.clone())
    }

    fn array_at(&self, value: Value, name: String) -> Result<Array> {
        let Some((header, bytes)) = self.array_parts(value) else { return Err(self.wrong("plain array")) };
        Array::from_parts(name, header, bytes)
    }

    /// Interprets the state of a numpy array: (version, shape, dtype, Fortran order, bytes).
    fn array_parts(&self, value: Value) -> Option<(Header, Bytes)> {
        let (_, state) = self.object(value, Global::NdArray)?;
        let &[Value::Int(1), shape, dtype, Value::Bool(fortran), Value::Node(bytes)] = self.tuple(state)?
        else {
            return None;
        };
        let Node::Bytes(range) = self.nodes.get(bytes as usize)? else { return None };
        let shape = self.sizes(shape)?;
        let (dtype, big_endian) = self.dtype(dtype)?;
        let header = Header { dtype, big_endian, fortran, shape };
        Some((header, Bytes::Mapped(self.map.clone(), range.clone())))
    }

    fn sizes(&self, shape: Value) -> Option<Vec<usize>> {
        // The maximum number of dimensions of numpy.
        const MOST: usize = 32;
        let dims = self.tuple(shape).filter(|dims| dims.len() <= MOST)?;
        dims.iter()
            .map(|dim| match dim {
                Value::Int(n) => usize::try_from(*n).ok(),
                _ => None,
            })
            .collect()
    }

    /// Interprets `dtype('f4', 0, 1)` with state (3, '<', …). Also returns whether it is big-endian.
    fn dtype(&self, value: Value) -> Option<(DType, bool)> {
        let (args, state) = self.object(value, Global::DType)?;
        let code = self.text(*self.tuple(args)?.first()?)?;
        let order = self.text(*self.tuple(state)?.get(1)?)?;
        let descr = [order, code].concat();
        let (dtype, big_endian) = DType::parse(std::str::from_utf8(&descr).ok()?);
        // These files hold neither text nor objects.
        dtype.size().map(|_| (dtype, big_endian))
    }

    /// Interprets the pickle as a sparse matrix.
    pub fn matrix(&self) -> Result<CsrMatrix> {
        let (_, state) =
            self.object(self.root, Global::CsrMatrix).ok_or_else(|| self.wrong("sparse matrix"))?;
        let field = |key: &str| self.field(state, key).ok_or_else(|| self.wrong(&format!("field {key:?}")));
        let array = |key: &str| self.array_at(field(key)?, format!("{}[{key}]", self.name));
        let shape = self.sizes(field("_shape")?).and_then(|dims| dims.try_into().ok());
        Ok(CsrMatrix {
            indptr: array("indptr")?,
            indices: array("indices")?,
            data: array("data")?,
            shape: shape.ok_or_else(|| self.wrong("matrix shape"))?,
        })
    }

    fn field(&self, dict: Value, key: &str) -> Option<Value> {
        let Node::Dict(items) = self.node(dict)? else { return None };
        items.iter().find(|(k, _)| self.text(*k) == Some(key.as_bytes())).map(|&(_, value)| value)
    }

    /// Interprets the pickle as adjacency lists.
    pub fn adjacency(self) -> Result<Adjacency> {
        let Some(Node::Dict(items)) = self.node(self.root) else { return Err(self.wrong("dictionary")) };
        let mut rows = Vec::with_capacity(items.len());
        let mut used = vec![false; self.nodes.len()];
        let mut edges = 0;
        for &(key, value) in items {
            let Value::Int(key) = key else { return Err(self.wrong("node id")) };
            let (Value::Node(id), Some(Node::List(list))) = (value, self.node(value)) else {
                return Err(self.wrong(&format!("neighbour list of node {key}")));
            };
            // A list shared by many keys would make a huge graph of a small file.
            if std::mem::replace(&mut used[id as usize], true) {
                let problem = format!("node {key} shares its neighbour list with another node");
                return Err(Error::input(&self.name, problem));
            }
            if let Some(at) = list.iter().position(|item| !matches!(item, Value::Int(_))) {
                return Err(self.wrong(&format!("node id as neighbour {at} of node {key}")));
            }
            edges += list.len() as u64;
            rows.push((key, id));
        }
        Ok(Adjacency { pickle: self, rows, edges })
    }
}

/// A dictionary from node id to neighbour ids. Keys are sources.
pub struct Adjacency {
    pickle: Pickle,
    /// Node id and number of its list.
    rows: Vec<(i64, u32)>,
    edges: u64,
}

impl Adjacency {
    /// Returns the number of nodes with a list.
    pub fn keys(&self) -> usize {
        self.rows.len()
    }

    fn list(&self, id: u32) -> &[Value] {
        match &self.pickle.nodes[id as usize] {
            Node::List(items) => items,
            _ => &[],
        }
    }
}

impl EdgeSource for Adjacency {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        let mut batch = Vec::new();
        for &(key, id) in &self.rows {
            batch.extend(self.list(id).iter().filter_map(|item| match item {
                Value::Int(neighbour) => Some([key, *neighbour]),
                _ => None,
            }));
            if batch.len() >= 4096 {
                sink(&batch)?;
                batch.clear();
            }
        }
        sink(&batch)
    }

    fn place(&self, index: u64) -> String {
        let mut before = 0;
        for &(key, id) in &self.rows {
            let n = self.list(id).len() as u64;
            if index < before + n {
                return format!("{}, neighbour {} of node {key}", self.pickle.name, index - before);
            }
            before += n;
        }
        self.pickle.name.clone()
    }

    fn len(&self) -> Option<u64> {
        Some(self.edges)
    }
}
