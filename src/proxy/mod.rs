//! The I/O shell round `route`: what a front end launches as if it were a kernel.
