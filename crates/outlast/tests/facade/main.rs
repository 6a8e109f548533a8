//! The façade as a program uses it: sessions, the rehearsal agent, several holders of one file, typed answers.
mod agent;
mod sessions;
mod shared;
mod stage;
mod tool;
mod typed;
