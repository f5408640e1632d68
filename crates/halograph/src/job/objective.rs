//! Metric and class weights of a run, resolved for its data.

use std::path::Path;

use halograph_graph::error::{Error, IoContext, Result};
use halograph_train::config::{ClassWeights, TrainConfig};
use halograph_train::objective::CLASS_WEIGHTS;

use crate::config::Setting;
use crate::words::count;

/// The first line of a file of class weights.
const HEADER: [&str; 2] = ["class", "weight"];
/// Classes that an error names at most.
const NAMED: usize = 5;

/// The classes of a dataset.
#[derive(Clone, Copy)]
pub(super) struct Classes<'a> {
    /// Their number.
    pub count: u64,
    /// Their names, if they have any.
    pub names: &'a [String],
}

impl Classes<'_> {
    /// Returns the name of a class, or its number.
    fn name(self, class: usize) -> String {
        self.names.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    /// Returns the class with this name or number; a name has precedence.
    fn find(self, text: &str) -> Option<usize> {
        let named = self.names.iter().position(|name| name == text);
        named.or_else(|| text.parse().ok().filter(|&class: &usize| (class as u64) < self.count))
    }
}

/// Reads the file of class weights, if there is one; refuses weights that do not fit the classes. Changes no file.
pub(super) fn resolve_weights(train: &mut TrainConfig, settings: &[Setting], classes: Classes) -> Result<()> {
    match &train.class_weights {
        Some(ClassWeights::File(path)) => {
            let weights = read(path, classes)?;
            train.class_weights = Some(ClassWeights::Given(weights));
        }
        Some(ClassWeights::Given(weights)) if weights.len() as u64 != classes.count => {
            let problem = format!("{} for {} classes", count(weights.len(), "weight"), classes.count);
            return Err(Error::input(place(settings, CLASS_WEIGHTS), problem)
                .help("give one weight per class, in order"));
        }
        _ => (),
    }
    Ok(())
}

/// Returns where a key was set, for errors.
pub(super) fn place(settings: &[Setting], key: &str) -> String {
    let setting = settings.iter().rev().find(|setting| setting.name() == key);
    setting.map_or(key.to_string(), |setting| format!("{}: {key}", setting.place))
}

/// Reads the weight of every class from a CSV file with the columns `class` (name or number) and `weight`.
fn read(path: &Path, classes: Classes) -> Result<Vec<f64>> {
    let metadata =
        std::fs::metadata(path).at(path, "open").map_err(|error| error.if_missing(missing_help(path)))?;
    if !metadata.is_file() {
        return Err(
            Error::input(path.display(), "is not a regular file").help("give a CSV file of class weights")
        );
    }
    let bytes = std::fs::read(path).at(path, "read")?;
    let mut weights = vec![None; classes.count as usize];
    let mut rows = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(&bytes[..])
        .into_records();
    let is_header = |row: &csv::StringRecord| row.iter().map(str::to_lowercase).eq(HEADER);
    if !matches!(rows.next(), Some(Ok(row)) if is_header(&row)) {
        let problem = format!("the first line is not {}", HEADER.join(","));
        return Err(
            Error::input(line_of(path, 1), problem).help(format!("begin the file with {}", HEADER.join(",")))
        );
    }
    for row in rows {
        let unreadable = |e: csv::Error| {
            let line = e.position().map_or(1, csv::Position::line);
            Error::input(line_of(path, line), e).help("save the file as CSV in UTF-8")
        };
        let row = row.map_err(unreadable)?;
        let at = line_of(path, row.position().map_or(1, csv::Position::line));
        let (class, weight) =
            parse(&row, classes).map_err(|(problem, help)| Error::input(&at, problem).help(help))?;
        if weights[class].replace(weight).is_some() {
            let problem = format!("class {} has a weight already", classes.name(class));
            return Err(Error::input(at, problem).help("keep one line for each class"));
        }
    }
    complete(path, weights, classes)
}

/// Returns what to do about class weights that are not a file.
fn missing_help(path: &Path) -> &'static str {
    match strsim::damerau_levenshtein("balanced", &path.to_string_lossy().to_lowercase()) {
        0..=3 => "did you mean balanced?",
        _ => "give the path of a CSV file of class weights, or balanced",
    }
}

fn line_of(path: &Path, line: u64) -> String {
    format!("{}, line {line}", path.display())
}

/// Parses a line of the file; an error is a problem and its remedy.
fn parse(row: &csv::StringRecord, classes: Classes) -> Result<(usize, f64), (String, String)> {
    let (Some(name), Some(weight), 2) = (row.get(0), row.get(1), row.len()) else {
        return Err((
            format!("{} where 2 are needed", count(row.len(), "field")),
            "write class,weight".into(),
        ));
    };
    let class = classes.find(name).ok_or_else(|| {
        let known: Vec<String> =
            (0..classes.count.min(NAMED as u64) as usize).map(|class| classes.name(class)).collect();
        let more = if classes.count > NAMED as u64 { ", …" } else { "" };
        (format!("there is no class {name:?}"), format!("the classes are {}{more}", known.join(", ")))
    })?;
    match weight.parse::<f64>() {
        Ok(weight) if weight.is_finite() && weight >= 0.0 => Ok((class, weight)),
        _ => Err((format!("weight {weight:?} of class {name}"), "give a number, 0 or more".into())),
    }
}

/// Refuses a file without a weight for every class, or with weights of 0 only.
fn complete(path: &Path, weights: Vec<Option<f64>>, classes: Classes) -> Result<Vec<f64>> {
    let missing = (0..weights.len()).filter(|&class| weights[class].is_none());
    let mut missing: Vec<String> = missing.map(|class| classes.name(class)).collect();
    if !missing.is_empty() {
        let more = missing.len().saturating_sub(NAMED);
        missing.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let problem = format!("no weight for class {}{more}", missing.join(", "));
        return Err(
            Error::input(path.display(), problem).help("add a line for each class; 1 leaves it as it is")
        );
    }
    let weights: Vec<f64> = weights.into_iter().flatten().collect();
    if weights.iter().all(|&weight| weight == 0.0) {
        return Err(
            Error::input(path.display(), "all weights are 0").help("give one class or more a weight above 0")
        );
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["good", "fraud, card", "0"];

    fn read_text(text: impl AsRef<[u8]>) -> Result<Vec<f64>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.csv");
        std::fs::write(&path, text).expect("it is written");
        let names = NAMES.map(String::from);
        read(&path, Classes { count: 3, names: &names })
    }

    #[test]
    fn classes_are_named_or_numbered() {
        // "0" is the name of class 2; "good" is class 0.
        let text = "Class, Weight\n\"fraud, card\", 20\n0,0.5\ngood,1e0\n";
        assert_eq!(read_text(text).expect("valid"), [1.0, 20.0, 0.5]);
        assert_eq!(read_text("class,weight\r\n1,2\r\n0,0\r\ngood,1\r\n").expect("valid"), [1.0, 2.0, 0.0]);
    }

    #[test]
    fn bad_files_are_refused_with_their_line() {
        let rest = "good,1\n1,1\n0,1\n";
        for (text, words) in [
            ("".to_string(), "line 1: the first line is not class,weight"),
            (rest.to_string(), "line 1: the first line is not class,weight"),
            (format!("class,weight\n{rest}bad,1\n"), "line 5: there is no class \"bad\""),
            (format!("class,weight\n{rest}3,1\n"), "line 5: there is no class \"3\""),
            (format!("class,weight\n{rest}good,2\n"), "line 5: class good has a weight already"),
            ("class,weight\ngood,-1\n".into(), "line 2: weight \"-1\" of class good"),
            ("class,weight\ngood,NaN\n".into(), "line 2: weight \"NaN\" of class good"),
            ("class,weight\ngood,inf\n".into(), "line 2: weight \"inf\" of class good"),
            ("class,weight\ngood,\n".into(), "line 2: weight \"\" of class good"),
            ("class,weight\ngood,1,2\n".into(), "line 2: 3 fields where 2 are needed"),
            ("class,weight\ngood,1\n".into(), "no weight for class fraud, card, 0"),
            ("class,weight\ngood,0\n1,0\n0,0\n".into(), "all weights are 0"),
        ] {
            let message = read_text(&text).expect_err("must be refused").to_string();
            assert!(message.contains(words) && message.contains("help: "), "{text:?}: {message}");
        }
        let message = read_text(b"class,weight\ng\xff,1\n").expect_err("not UTF-8").to_string();
        assert!(message.contains("line 2"), "{message}");
    }
}
