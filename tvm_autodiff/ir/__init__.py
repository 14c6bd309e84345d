"""The one room that knows TVM's node classes: vocabulary, traversal, stages and graphs."""
