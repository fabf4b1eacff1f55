"""The pipeline: everything that needs Spark. Traces in, verdicts and figures out.

A function here takes a `SparkSession` from its caller and never makes one by itself; `session.spark_session` makes one
with settings that suit a single machine. Importing this package imports no Spark, so that a command can say in one
line that it is missing.
"""
