//! ZMTP over TCP and Unix sockets.
