"""A controlled comparison of training with exact ids and with ids that were rendered again."""
