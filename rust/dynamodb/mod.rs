//! Requests and responses of `DynamoDB`.
//!
//! `encoder` writes actions; `request` feeds it from Python's values, `template` from columns.

pub mod actions;
pub mod change;
pub mod encoder;
pub mod item_reader;
pub mod request;
pub mod response;
pub mod template;
