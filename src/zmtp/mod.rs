//! The ZMTP 3.x state machine. Pure.
