//! Every test that needs more than one module: protocol against libzmq, flows through real parts.

mod layers;
mod python;
