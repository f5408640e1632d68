//! Graphs as their users see them. One program, for it takes longer to link than to run.

mod check;
mod order;
mod partition;
mod real_graphs;
mod real_tables;
