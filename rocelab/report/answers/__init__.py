"""What happened, as an engineer would say it: the answers of drills and jobs, and their clauses.

An answer is a sentence, four figures and a plot. A sentence has a clause for each thing that the
result has, and none for what it does not have. No number is in it that is not in the result. Other
kinds of results have their answer in their own package.
"""
