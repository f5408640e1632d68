//! HTML tables that scroll sideways, and the marks of runs in them.

use std::fmt::Write;

use super::chart::series_class;
use super::read::RunData;
use super::text::escape;

/// A table of HTML fragments. The first column holds the names of the rows and stays in view.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Name, class and cells of every row.
    pub rows: Vec<TableRow>,
}

/// A row of a [`Table`].
#[derive(Debug, Default)]
pub(super) struct TableRow {
    pub name: String,
    pub class: &'static str,
    pub cells: Vec<String>,
}

impl Table {
    /// Exchanges rows and columns; classes of rows are lost.
    pub fn transposed(self) -> Table {
        let column = |c: usize| self.rows.iter().map(|row| row.cells[c].clone()).collect();
        let rows = self.columns.iter().enumerate();
        let rows =
            rows.map(|(c, name)| TableRow { name: name.clone(), class: "", cells: column(c) }).collect();
        Table { columns: self.rows.into_iter().map(|row| row.name).collect(), rows }
    }

    /// Returns the table as HTML.
    pub fn to_html(&self) -> String {
        let mut html = String::from("<div class=\"wide\"><table class=\"values\"><thead><tr><th></th>");
        self.columns.iter().for_each(|column| html += &format!("<th>{column}</th>"));
        html.push_str("</tr></thead><tbody>\n");
        for TableRow { name, class, cells } in &self.rows {
            let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
            let _ = write!(html, "<tr{class}><th>{name}</th>");
            cells.iter().for_each(|cell| html += &format!("<td>{cell}</td>"));
            html.push_str("</tr>\n");
        }
        html + "</tbody></table></div>\n"
    }
}

/// Returns names and values as a list in columns; nothing if there are none.
pub(super) fn list(entries: impl Iterator<Item = (String, String)>) -> String {
    let entries: String =
        entries.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")).collect();
    if entries.is_empty() { entries } else { format!("<dl>{entries}</dl>\n") }
}

/// Returns the colour mark of run `k`.
pub(super) fn mark(k: usize) -> String {
    format!("<span class=\"chip {}\"></span>", series_class(k))
}

/// Returns colour mark and name of run `k`.
pub(super) fn marked_name(k: usize, run: &RunData) -> String {
    format!("{}{}", mark(k), escape(&run.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_exchanges_rows_and_columns() {
        let row = |name: &str, cells: [&str; 2]| TableRow {
            name: name.into(),
            class: "",
            cells: cells.map(String::from).to_vec(),
        };
        let columns = vec!["a".to_string(), "b".to_string()];
        let table =
            Table { columns, rows: vec![row("1", ["a1", "b1"]), row("2", ["a2", "b2"])] }.transposed();
        assert_eq!(table.columns, ["1", "2"]);
        assert!(table.to_html().contains("<tr><th>b</th><td>b1</td><td>b2</td></tr>"), "{}", table.to_html());
    }
}
