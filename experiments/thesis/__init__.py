"""The evaluation of Novák's thesis (2013), repeated: trees of tests and ways to count.

`workload` makes its predicates and events, `printed` has its tables, `contestants` what is compared.
`thesis` measures and shows, `claims` judges, `switches` measures what the thesis only discusses.
"""
