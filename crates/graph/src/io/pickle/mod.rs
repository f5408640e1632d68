//! A restricted pickle reader.
//!
//! A pickle is a program for a stack machine that may call anything in Python. This reader knows six names and the opcodes
//! of protocol 2 that arrays, sparse matrices and adjacency lists are written with; everything else is refused by name.
//! Nothing is called: a call of a known name becomes a record of the name and its arguments, which `objects` interprets.
//!
//! Every opcode makes at most one value, containers refer to other values by number, and text stays in the mapped file, so
//! that memory is linear in the size of the file.

mod objects;
mod opcode;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

pub use objects::{Adjacency, CsrMatrix};

use crate::error::{Error, Result};
use crate::io::npy;

/// Maximum height of the stack. Python writes items in batches of 1,000, so real stacks are far lower.
const MAX_STACK: usize = 1 << 20;

/// The names that a pickle may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Global {
    CsrMatrix,
    Reconstruct,
    NdArray,
    DType,
    DefaultDict,
    List,
}

impl Global {
    fn find(module: &str, name: &str) -> Option<Global> {
        match (module, name) {
            ("scipy.sparse.csr", "csr_matrix") => Some(Global::CsrMatrix),
            ("numpy.core.multiarray", "_reconstruct") => Some(Global::Reconstruct),
            ("numpy", "ndarray") => Some(Global::NdArray),
            ("numpy", "dtype") => Some(Global::DType),
            ("collections", "defaultdict") => Some(Global::DefaultDict),
            ("__builtin__", "list") => Some(Global::List),
            _ => None,
        }
    }
}

/// A value on the stack.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    Global(Global),
    /// Number of a [`Node`].
    Node(u32),
}

/// A value that is not a plain number.
#[derive(Debug)]
enum Node {
    /// Range of a byte string in the file.
    Bytes(Range<usize>),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A call of `class` with `args`, and the state set after it.
    Object {
        class: Global,
        args: Value,
        state: Option<Value>,
    },
}

/// A parsed pickle.
pub struct Pickle {
    name: String,
    map: Arc<Mmap>,
    nodes: Vec<Node>,
    root: Value,
}

impl Pickle {
    /// Maps and parses `path`.
    pub fn open(path: &Path) -> Result<Pickle> {
        let map = npy::map(path)?;
        let name = path.display().to_string();
        let (nodes, root) = Machine::run(&map).map_err(|(at, problem)| {
            Error::input(format!("{name}, byte {at}"), problem).help(
                "only Planetoid pickles of protocol 2 are supported; if the file is damaged, download it again",
            )
        })?;
        Ok(Pickle { name, map, nodes, root })
    }
}

/// The error is a problem without its position.
type Step<T> = std::result::Result<T, String>;

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    nodes: Vec<Node>,
}

impl<'a> Machine<'a> {
    /// Executes all opcodes; an error holds the offset of its opcode.
    fn run(bytes: &'a [u8]) -> std::result::Result<(Vec<Node>, Value), (usize, String)> {
        let mut machine = Machine {
            bytes,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            nodes: Vec::new(),
        };
        loop {
            let at = machine.at;
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) if machine.at == bytes.len() => return Ok((machine.nodes, root)),
                Ok(Some(_)) => return Err((machine.at, "bytes after the end of the pickle".into())),
                Err(problem) => return Err((at, problem)),
            }
        }
    }

    /// Executes one opcode; returns the result after the last one.
    fn step(&mut self) -> Step<Option<Value>> {
        use opcode::*;
        let code = self.byte()?;
        match code {
            PROTO => self.protocol()?,
            STOP => return self.pop().map(Some),
            MARK => self.mark()?,
            NONE => self.push(Value::None)?,
            NEWTRUE => self.push(Value::Bool(true))?,
            NEWFALSE => self.push(Value::Bool(false))?,
            BININT1 => self.number::<1>(|b| i64::from(b[0]))?,
            BININT2 => self.number::<2>(|b| i64::from(u16::from_le_bytes(b)))?,
            BININT => self.number::<4>(|b| i64::from(i32::from_le_bytes(b)))?,
            LONG1 => self.long()?,
            SHORT_BINSTRING => {
                let len = self.byte()?;
                self.text(usize::from(len))?;
            }
            BINSTRING => {
                let len = i32::from_le_bytes(self.array()?);
                self.text(usize::try_from(len).map_err(|_| format!("a string of {len} bytes"))?)?;
            }
            GLOBAL => self.global()?,
            BINPUT | LONG_BINPUT => {
                let key = self.memo_key(code == LONG_BINPUT)?;
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            BINGET | LONG_BINGET => {
                let key = self.memo_key(code == LONG_BINGET)?;
                let value = *self.memo.get(&key).ok_or_else(|| format!("nothing was stored as {key}"))?;
                self.push(value)?;
            }
            EMPTY_TUPLE => self.make(Node::Tuple(Vec::new()))?,
            EMPTY_LIST => self.make(Node::List(Vec::new()))?,
            EMPTY_DICT => self.make(Node::Dict(Vec::new()))?,
            TUPLE1 | TUPLE2 | TUPLE3 => {
                let items = self.pop_many(usize::from(code - TUPLE1) + 1)?;
                self.make(Node::Tuple(items))?;
            }
            TUPLE => {
                let items = self.pop_to_mark()?;
                self.make(Node::Tuple(items))?;
            }
            APPEND | APPENDS => {
                let items = if code == APPEND { self.pop_many(1)? } else { self.pop_to_mark()? };
                self.append(items)?;
            }
            SETITEM | SETITEMS => {
                let items = if code == SETITEM { self.pop_many(2)? } else { self.pop_to_mark()? };
                self.set_items(&items)?;
            }
            REDUCE | NEWOBJ => self.call(code == NEWOBJ)?,
            BUILD => self.build()?,
            other => return Err(format!("opcode {} is not supported", opcode::name(other))),
        }
        Ok(None)
    }

    fn take(&mut self, n: usize) -> Step<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or("truncated: the file ends here")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take gives as many bytes as asked for"))
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn protocol(&mut self) -> Step<()> {
        match self.byte()? {
            2 => Ok(()),
            other => Err(format!("pickle protocol {other} where 2 is needed")),
        }
    }

    fn number<const N: usize>(&mut self, decode: impl Fn([u8; N]) -> i64) -> Step<()> {
        let number = decode(self.array()?);
        self.push(Value::Int(number))
    }

    /// Reads a Python long, in little-endian two's complement, of at most 8 bytes.
    fn long(&mut self) -> Step<()> {
        let len = self.byte()?;
        let bytes = self.take(usize::from(len))?;
        if bytes.len() > 8 {
            return Err(format!("an integer of {len} bytes"));
        }
        let sign = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xFF } else { 0 };
        let mut wide = [sign; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(wide)))
    }

    fn text(&mut self, len: usize) -> Step<()> {
        let start = self.at;
        self.take(len)?;
        self.make(Node::Bytes(start..start + len))
    }

    /// Reads a line of a `GLOBAL`, whose length is limited.
    fn line(&mut self) -> Step<&'a str> {
        const LIMIT: usize = 200;
        let rest = &self.bytes[self.at..];
        let end = rest.iter().take(LIMIT).position(|&b| b == b'\n').ok_or("a name without end")?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| "a name that is not text")?;
        self.at += end + 1;
        Ok(line)
    }

    fn global(&mut self) -> Step<()> {
        let (module, name) = (self.line()?, self.line()?);
        let global = Global::find(module, name)
            .ok_or_else(|| format!("the Python object {:?} is not supported", format!("{module}.{name}")))?;
        self.push(Value::Global(global))
    }

    fn memo_key(&mut self, long: bool) -> Step<u32> {
        if long { Ok(u32::from_le_bytes(self.array()?)) } else { Ok(u32::from(self.byte()?)) }
    }

    fn make(&mut self, node: Node) -> Step<()> {
        let id = u32::try_from(self.nodes.len()).map_err(|_| "more than 2^32 values")?;
        self.nodes.push(node);
        self.push(Value::Node(id))
    }

    fn push(&mut self, value: Value) -> Step<()> {
        if self.stack.len() == MAX_STACK {
            return Err(format!("more than {MAX_STACK} values on the stack"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn mark(&mut self) -> Step<()> {
        if self.marks.len() == MAX_STACK {
            return Err(format!("more than {MAX_STACK} marks on the stack"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Returns the number of values above the last mark.
    fn height(&self) -> usize {
        self.stack.len() - self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Step<Value> {
        let last = self.stack.last().filter(|_| self.height() > 0);
        last.copied().ok_or("the stack is empty".into())
    }

    fn pop(&mut self) -> Step<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_many(&mut self, n: usize) -> Step<Vec<Value>> {
        if self.height() < n {
            return Err(format!("{n} values are needed on the stack, there are {}", self.height()));
        }
        Ok(self.stack.split_off(self.stack.len() - n))
    }

    fn pop_to_mark(&mut self) -> Step<Vec<Value>> {
        let mark = self.marks.pop().ok_or("no mark is on the stack")?;
        Ok(self.stack.split_off(mark))
    }

    /// Returns the node on top of the stack.
    fn top_node(&mut self) -> Step<&mut Node> {
        match self.top()? {
            Value::Node(id) => Ok(&mut self.nodes[id as usize]),
            other => Err(format!("{other:?} where a container is needed")),
        }
    }

    fn append(&mut self, items: Vec<Value>) -> Step<()> {
        match self.top_node()? {
            Node::List(list) => list.extend(items),
            _ => return Err("items for something that is no list".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Value]) -> Step<()> {
        let Node::Dict(dict) = self.top_node()? else {
            return Err("items for something that is no dictionary".into());
        };
        if !items.len().is_multiple_of(2) {
            return Err("a key without a value".into());
        }
        dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    /// Records a call: `REDUCE` of a function, `NEWOBJ` of a class.
    fn call(&mut self, new: bool) -> Step<()> {
        let (args, callee) = (self.pop()?, self.pop()?);
        let class = match callee {
            Value::Global(Global::CsrMatrix) if new => Global::CsrMatrix,
            Value::Global(Global::Reconstruct) if !new => Global::NdArray,
            Value::Global(Global::DType) if !new => Global::DType,
            Value::Global(Global::DefaultDict) if !new => return self.make(Node::Dict(Vec::new())),
            other => return Err(format!("a call of {other:?} is not supported")),
        };
        self.make(Node::Object { class, args, state: None })
    }

    fn build(&mut self) -> Step<()> {
        let given = self.pop()?;
        match self.top_node()? {
            Node::Object { state: state @ None, .. } => *state = Some(given),
            _ => return Err("a state for something that takes none".into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A pickle with these opcodes between its head and its end.
    fn pickle(parts: &[&[u8]]) -> Vec<u8> {
        [&[0x80, 2], &parts.concat()[..], b"."].concat()
    }

    fn problem(bytes: &[u8]) -> (usize, String) {
        Machine::run(bytes).err().unwrap()
    }

    #[test]
    fn numbers_are_decoded() {
        for (code, value) in [
            (&b"K\xFF"[..], 255),
            (b"M\xFF\xFF", 65535),
            (b"J\xFE\xFF\xFF\xFF", -2),
            (b"\x8A\x00", 0),
            (b"\x8A\x02\x00\xFF", -256),
            (b"\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", i64::MAX),
        ] {
            assert_eq!(Machine::run(&pickle(&[code])).unwrap().1, Value::Int(value));
        }
    }

    #[test]
    fn strangers_are_refused_by_name_and_place() {
        let (at, text) = problem(b"\x80\x02cos\nsystem\n(S'true'\ntR.");
        assert_eq!((at, text.as_str()), (2, "the Python object \"os.system\" is not supported"));
        assert_eq!(problem(b"\x80\x02NG"), (3, "opcode BINFLOAT is not supported".into()));
        assert_eq!(problem(b"\x80\x02\xFF"), (2, "opcode 0xff is not supported".into()));
        assert!(problem(b"\x80\x04N.").1.contains("protocol 4"));
        assert!(problem(&pickle(&[b"c__builtin__\nlist\n)R"])).1.contains("a call of"));
        assert!(problem(&pickle(&[b"N", b".x"])).1.contains("bytes after the end"));
    }

    #[test]
    fn the_stack_is_guarded() {
        for code in
            [&b"a"[..], b"]a", b"]Ne", b"t", b"(", b"\x87", b"q\x00", b"h\x07", b"}Ns", b"}(Nu", b"NNb"]
        {
            assert!(Machine::run(&pickle(&[code])).is_err(), "{code:?}");
        }
        assert!(problem(&vec![b']'; MAX_STACK + 1]).1.contains("values on the stack"));
        assert!(problem(&vec![b'('; MAX_STACK + 1]).1.contains("marks on the stack"));
        // Values below a mark cannot be used before the mark is.
        assert!(Machine::run(&pickle(&[b"N(."])).is_err());
    }

    #[test]
    fn lies_about_lengths_are_refused() {
        for code in [&b"T\xFF\xFF\xFF\x7Fabc"[..], b"T\xFF\xFF\xFF\xFFabc", b"U\xFFabc", b"\x8A\x09123456789"]
        {
            assert!(Machine::run(&pickle(&[code])).is_err(), "{code:?}");
        }
    }

    #[test]
    fn a_list_that_holds_itself_is_only_a_number() {
        let (nodes, root) = Machine::run(&pickle(&[b"]q\x00h\x00a"])).unwrap();
        assert_eq!(root, Value::Node(0));
        assert!(matches!(&nodes[0], Node::List(items) if items[..] == [Value::Node(0)]));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Machine::run(&bytes);
        }

        /// Noise out of known opcodes gets further than plain noise.
        #[test]
        fn opcode_noise_never_panics(
            codes in prop::collection::vec(prop::sample::select(&b"(.Nab]}esutqh)R\x85\x86\x87\x81\x88K\x01\x00U"[..]), 0..60),
        ) {
            let _ = Machine::run(&pickle(&[&codes]));
        }
    }
}
