"""The evaluation of Wang, Zhang and Kitsuregawa's adaptive batch search, reproduced (W-6).

One module per figure: `fig4a` to `fig4d`, then `counting` (E-W5) and `regret` (the controllers over long,
shifting runs). All share the `settings`, the `index` that grows, the `work` of a batch by plan, and one
`runner`. `report` writes the page that puts the paper's claims beside what was found.
"""
