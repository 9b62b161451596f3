"""The model of users: data and pure functions, without network, clock or shared randomness."""
