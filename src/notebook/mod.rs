//! `.ipynb` files as data.
