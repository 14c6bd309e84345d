"""What a reduction is: a sum of products, a body over operands, a prefix, a choice by masks."""
