"""Every class of transformers' causal-language-model mapping, put to the test: what docs/families.md tells."""
