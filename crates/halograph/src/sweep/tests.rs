use halograph_nn::model::Kind;

use super::*;

fn axis(text: &str) -> Axis {
    Axis::parse(text, |name| (name == "lr").then(|| "train.lr".into())).unwrap()
}

fn refused(axes: &[&str], settings: &[Setting]) -> String {
    let axes: Vec<Axis> = axes.iter().map(|text| axis(text)).collect();
    Sweep::new(settings.to_vec(), &axes, 1, config::resolve).unwrap_err().to_string()
}

#[test]
fn all_combinations_are_trained_seeds_fastest() {
    let settings = vec![Setting::new("--seed", "train.seed", "7")];
    let sweep = Sweep::new(settings, &[axis("lr=0.01,0.003"), axis("model.hidden=8,16")], 2, config::resolve)
        .unwrap();
    let names: Vec<String> = sweep.points.iter().map(Point::name).collect();
    assert_eq!(
        names[..3],
        ["lr=0.01_hidden=8_seed=7", "lr=0.01_hidden=8_seed=8", "lr=0.01_hidden=16_seed=7"]
    );
    assert_eq!(names.len(), 8);
    let config = &sweep.points[7].config;
    assert_eq!((config.train.lr, config.model.hidden, config.train.seed), (0.003, 16, 8));
}

#[test]
fn values_may_be_lists_and_names() {
    let sweep = Sweep::new(
        vec![Setting::new("", "train.strategy", "minibatch")],
        &[axis("train.fanout=[15,10,5],[4,3,2]"), axis("model.kind=sage,gcn")],
        1,
        config::resolve,
    )
    .unwrap();
    assert_eq!(sweep.points[3].labels(), ["fanout=4,3,2", "model=gcn"]);
    assert_eq!(sweep.points[3].config.train.fanout, [4, 3, 2]);
    assert_eq!(sweep.points[3].name(), "fanout=4-3-2_model=gcn_seed=0");
}

#[test]
fn grids_that_make_no_sense_are_refused() {
    for text in ["lr", "=1", "lr=", "lr=1,,2", "train.fanout=[1,2", "train.fanout=1]"] {
        let error = Axis::parse(text, |_| None).unwrap_err().to_string();
        assert!(error.contains("--grid") && error.contains("KEY=VALUE"), "{text}: {error}");
    }
    let error = Axis::parse("lr=1,1.0,1", |_| None).unwrap_err().to_string();
    assert!(error.contains("1 is listed twice"), "{error}");
    assert!(refused(&["train.seed=1,2"], &[]).contains("--seeds"));
    assert!(refused(&["lr=1,2", "train.lr=3"], &[]).contains("lr is given twice"));
    assert!(refused(&["lr=1,2"], &[Setting::new("--lr", "train.lr", "1")]).contains("also set by --lr"));
    assert!(refused(&["lr=0.1,-1"], &[]).contains("--grid lr"));
    assert!(refused(&["model.hiden=8"], &[]).contains("model.hidden"));
    assert!(refused(&["lr=0.1,1,1.0"], &[]).contains("lr=1 and lr=1.0 are the same run"));
    let values: Vec<String> = (1..200).map(|n| n.to_string()).collect();
    let many = values.join(",");
    let error = refused(&[&format!("model.hidden={many}"), &format!("train.epochs={many}")], &[]);
    assert!(error.contains("more than 10000 runs"), "{error}");
}

#[test]
fn very_large_and_small_values_have_an_exponent() {
    let sweep = Sweep::new(Vec::new(), &[axis("lr=1e-5,0.0001,1,1e30")], 1, config::resolve).unwrap();
    let labels: Vec<String> = sweep.points.iter().flat_map(Point::labels).collect();
    assert_eq!(labels, ["lr=1e-5", "lr=0.0001", "lr=1", "lr=1e30"]);
}

#[test]
fn runs_that_would_share_a_directory_are_refused() {
    let point = |value: &str, hidden: usize| {
        let mut config = Config::new(Kind::Gcn);
        config.model.hidden = hidden;
        Point { settings: vec![Setting::new("", "a.b", value)], seed: 0, config }
    };
    assert!(check_distinct(&[point("x,y", 1), point("x.y", 2)]).is_ok());
    let error = check_distinct(&[point("x,y", 1), point("x/y", 2)]).unwrap_err().to_string();
    assert!(error.contains("b=x,y and b=x/y would both be trained in b=x-y_seed=0"), "{error}");
    let error = check_distinct(&[point(&"x".repeat(300), 1)]).unwrap_err().to_string();
    assert!(error.contains("more than 240 bytes"), "{error}");
}

#[test]
fn splits_are_one_case() {
    let sweep =
        Sweep::new(Vec::new(), &[axis("data.split_index=0,1"), axis("lr=0.1,0.2")], 1, config::resolve)
            .unwrap();
    assert_eq!(sweep.points[2].name(), "split_index=1_lr=0.1_seed=0");
    let finished =
        |point: &Point| Finished { index: 0, point: point.clone(), summary: serde_json::json!({"val": 0.5}) };
    let runs: Vec<Finished> = sweep.points.iter().map(finished).collect();
    let cases = cases(&runs);
    assert_eq!(
        cases.iter().map(|case| (case.settings.join(" "), case.runs)).collect::<Vec<_>>(),
        [("lr=0.1".to_string(), 2), ("lr=0.2".to_string(), 2)]
    );
}

#[test]
fn cases_have_mean_and_sample_deviation_best_first() {
    let finished = |lr: &str, seed: u64, val: f64| Finished {
        index: 0,
        point: Point {
            settings: vec![Setting::new("", "train.lr", lr)],
            seed,
            config: Config::new(Kind::Gcn),
        },
        summary: serde_json::json!({"val": val, "test": val / 2.0, "epochs": 3}),
    };
    let cases = cases(&[finished("0.1", 0, 0.5), finished("0.2", 0, 0.8), finished("0.1", 1, 0.7)]);
    assert_eq!(cases[0].settings, ["lr=0.2"]);
    assert_eq!(cases[0].val, Some(Spread { mean: 0.8, deviation: None }));
    let val = cases[1].val.unwrap();
    assert!((val.mean - 0.6).abs() < 1e-12 && (val.deviation.unwrap() - 0.02_f64.sqrt()).abs() < 1e-12);
    assert_eq!((cases[1].runs, cases[1].epoch_seconds), (2, None));
}
