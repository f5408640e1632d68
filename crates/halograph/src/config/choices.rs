//! The values of enumerated keys, derived from the types themselves.

use std::fmt::Display;

use halograph_graph::dataset::Metric;
use halograph_graph::sample::SamplerKind;
use halograph_nn::Project;
use halograph_nn::model::{ActivationKind, Kind, NormKind};
use halograph_train::config::{
    ChunkOrder, GradientWeighting, HistoryInit, Normalize, OptimizerKind, Overlap, PartitionKind, Precision,
    RowCache, RowEncoding, ScheduleKind, ScheduleUnit, Smooth, StrategyKind,
};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Returns the valid values of a dotted key with a fixed set of names; empty for other keys.
pub fn choices(key: &str) -> &'static [&'static str] {
    match key {
        "data.normalize" => variants::<Normalize>(),
        "model.kind" => variants::<Kind>(),
        "model.norm" => variants::<NormKind>(),
        "model.activation" => variants::<ActivationKind>(),
        "model.project" => variants::<Project>(),
        "train.metric" => variants::<Metric>(),
        "train.strategy" => variants::<StrategyKind>(),
        "train.sampler" => variants::<SamplerKind>(),
        "train.row_cache" => variants::<RowCache>(),
        "train.row_encoding" => variants::<RowEncoding>(),
        "train.partition" => variants::<PartitionKind>(),
        "train.smooth" => variants::<Smooth>(),
        "train.overlap" => variants::<Overlap>(),
        "train.optimizer" => variants::<OptimizerKind>(),
        "train.schedule" => variants::<ScheduleKind>(),
        "train.schedule_unit" => variants::<ScheduleUnit>(),
        "train.precision" => variants::<Precision>(),
        "layers.history_init" => variants::<HistoryInit>(),
        "layers.chunk_order" => variants::<ChunkOrder>(),
        "layers.gradient_weights" => variants::<GradientWeighting>(),
        _ => &[],
    }
}

/// Returns the serialised names of an enumeration.
fn variants<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    T::deserialize(Probe).err().map_or(&[], |names| names.0)
}

/// A deserializer that fails with the variant names it is asked for.
struct Probe;

#[derive(Debug)]
struct Names(&'static [&'static str]);

impl Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Names {}

impl Error for Names {
    fn custom<M: Display>(_: M) -> Self {
        Names(&[])
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Names;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(variants))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
