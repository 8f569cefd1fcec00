//! The project folder `.nb/`.
