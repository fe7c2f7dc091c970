//! A server that answers as DynamoDB and S3 do, without doing their work: a benchmark's other end.
//!
//! Directories are described once (`POST /_/directory?...`) and answered from templates. Conditions
//! are not evaluated. Directories, marks and records that are written are kept, so that whole
//! operations of a client run through; what is written to a file's item is forgotten, unless `POST
//! /_/keep` was said.

mod control;
mod directories;
mod dynamodb;
mod http;
mod objects;
mod server;
mod state;
mod table;

pub use server::serve;
pub use state::Server;
