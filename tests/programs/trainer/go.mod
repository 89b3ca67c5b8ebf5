module example.com/tests/trainer

go 1.26.6

require github.com/kubeflow/trainer/v2 v2.3.0
