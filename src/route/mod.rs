//! Who gets what. Pure: takes messages and `now`, returns what to do.
