//! Scores of single classes as text.

use halograph::nn::metrics::class_counts::ClassScores;
use halograph::train::class_report::ClassReport;
use halograph::words::aligned;

/// Largest number of classes with a confusion matrix in the text.
const MAX_CONFUSION: usize = 20;
/// Classes that [`line`] names.
const WORST: usize = 3;

/// Formats the scores of the classes on test nodes, or else on validation nodes; `None` without such nodes.
pub fn text(report: &ClassReport) -> Option<String> {
    let (subset, scores) = report.held_out()?;
    let mut parts = vec![format!("{subset}: {}", means(scores))];
    if !scores.recall.is_empty() {
        parts.push(table(report, scores));
    }
    parts.extend(confusion(report, scores));
    Some(parts.join("\n\n"))
}

/// Formats the means over classes, and the classes with the lowest recall, in one line.
pub fn line(report: &ClassReport) -> Option<String> {
    let (subset, scores) = report.held_out()?;
    let mut classes: Vec<usize> =
        (0..scores.recall.len()).filter(|&class| scores.support[class] > 0).collect();
    classes.sort_by(|&a, &b| scores.recall[a].total_cmp(&scores.recall[b]));
    let shown = |&class: &usize| {
        format!("{} {:.4} ({} nodes)", report.name(class), scores.recall[class], scores.support[class])
    };
    let worst: Vec<String> = classes.iter().take(WORST.min(classes.len() / 2).max(1)).map(shown).collect();
    let worst =
        if worst.is_empty() { String::new() } else { format!("; lowest recall: {}", worst.join(", ")) };
    Some(format!("{subset}: {}{worst}", means(scores)))
}

fn means(scores: &ClassScores) -> String {
    let named = [
        ("accuracy", scores.accuracy),
        ("balanced accuracy", scores.balanced_accuracy),
        ("macro-F1", Some(scores.macro_f1)),
        ("micro-F1", scores.micro_f1),
    ];
    let known = named.iter().filter_map(|(name, score)| Some(format!("{name} {:.4}", (*score)?)));
    known.collect::<Vec<_>>().join(", ")
}

fn table(report: &ClassReport, scores: &ClassScores) -> String {
    let row = |class: usize| {
        let fractions =
            [scores.precision[class], scores.recall[class], scores.f1[class]].map(|x| format!("{x:.4}"));
        let cells = [report.name(class)].into_iter().chain(fractions);
        cells.chain([scores.support[class].to_string()]).collect::<Vec<String>>()
    };
    let head = ["class", "precision", "recall", "F1", "support"].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain((0..scores.recall.len()).map(row)).collect();
    aligned(&rows, 1)
}

/// Formats the confusion matrix.
fn confusion(report: &ClassReport, scores: &ClassScores) -> Option<String> {
    let matrix = scores.confusion.as_ref().filter(|matrix| matrix.len() <= MAX_CONFUSION)?;
    let first = std::iter::once("true \\ predicted".to_string());
    let mut rows = vec![first.chain((0..matrix.len()).map(|class| report.name(class))).collect::<Vec<_>>()];
    rows.extend(matrix.iter().enumerate().map(|(class, counts)| {
        [report.name(class)].into_iter().chain(counts.iter().map(u64::to_string)).collect()
    }));
    Some(aligned(&rows, 1))
}
