//go:build integration

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// workload is a Deployment with a budget: at least two of three pods.
const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {example.com/role: workers}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - {name: web, image: "nstance.local/pause:1", imagePullPolicy: Never}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec:
  minAvailable: 2
  selector: {matchLabels: {app: web}}
`

// drain scales down under a workload with a budget: its pods run on the new nodes, move off the
// leaving ones, and are never too few.
func (f *fixture) drain() {
	f.Helper()
	f.write("web.yaml", []byte(workload))
	f.run("kubectl apply -f web.yaml && kubectl rollout status deployment web --timeout 3m")
	hosts := f.run(`kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l`)
	if hosts != "3" {
		f.Errorf("three pods are on %s nodes", hosts)
	}
	ctx, stop := context.WithCancel(f.Context())
	var watching sync.WaitGroup
	lowest, looks := 3, 0
	watching.Go(func() {
		for retry.Wait(ctx, 100*time.Millisecond) == nil {
			if n, err := f.available(ctx); err == nil {
				lowest, looks = min(lowest, n), looks+1
			}
		}
	})
	f.run("kubectl -n nstance scale machinepool workers --replicas 1")
	left := f.ready(1)
	f.Eventually(minutes, "the workload is whole on the node that is left", func(ctx context.Context) error {
		n, err := f.available(ctx)
		if err == nil && n != 3 {
			err = fmt.Errorf("%d are available", n)
		}
		return err
	})
	stop()
	watching.Wait()
	if lowest < 2 || looks < 5 {
		f.Errorf("of %d looks at the workload one found only %d of it, where its budget says 2", looks, lowest)
	}
	where := f.run(`kubectl get pods -l app=web --field-selector status.phase=Running -o jsonpath='{.items[*].spec.nodeName}'`)
	if where != left[0]+" "+left[0]+" "+left[0] {
		f.Errorf("the workload is on %s, left is %s", where, left)
	}
	f.run("kubectl delete -f web.yaml")
}

// available returns how many pods of the workload are available.
func (f *fixture) available(ctx context.Context) (int, error) {
	out, err := f.try(ctx, "kubectl get deployment web -o jsonpath='{.status.availableReplicas}'")
	if err != nil || out == "" { // missing means 0
		return 0, err
	}
	return strconv.Atoi(out)
}

// single is a pod for which a machine is created.
const single = `apiVersion: v1
kind: Pod
metadata:
  name: build
  namespace: default
  annotations: {on-demand.nstance.dev/group: pods}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {example.com/role: pods}
  containers:
  - {name: build, image: "nstance.local/pause:1", imagePullPolicy: Never}
`

// podOfItsOwn: a pod that requests it gets a machine, which is deleted with the pod.
func (f *fixture) podOfItsOwn() {
	f.Helper()
	f.write("build.yaml", []byte(single))
	began := time.Now()
	f.run("kubectl apply -f build.yaml && kubectl wait pod build --for condition=Ready --timeout 4m")
	f.Logf("the pod runs on a machine of its own after %s", time.Since(began).Round(time.Millisecond))
	f.ready(2)
	f.run("kubectl delete -f build.yaml")
	f.ready(1)
	f.Eventually(minutes, "its instance is gone", func(ctx context.Context) error {
		out, err := f.try(ctx, "nstance-admin instance list --group pods -o json | grep -c pods || true")
		if err == nil && out != "0" {
			err = errors.New(out + " are left")
		}
		return err
	})
}
