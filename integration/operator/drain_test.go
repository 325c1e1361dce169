//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestDrain: a node is drained before its deletion, as the budgets of its pods allow, and for as
// long as the shard waits. One whose machine is gone already is not drained.
func TestDrain(t *testing.T) {
	f := newFixture(t, func(shard, config string) string {
		if shard == dev2 {
			return strings.Replace(config, `"default_drain_timeout": "1m"`, `"default_drain_timeout": "15s"`, 1)
		}
		return config
	})
	f.operate()
	f.running("web", 4)
	f.settled("web", 4)
	t.Run("the machine is gone", func(t *testing.T) { machineIsGone(f.in(t)) })
	t.Run("a budget that allows it in the end", func(t *testing.T) { budgetAllowsLater(f.in(t)) })
	t.Run("a budget that never allows it", func(t *testing.T) { budgetNeverAllows(f.in(t)) })
	t.Run("a hook of the Machine", func(t *testing.T) { hookHoldsDrain(f.in(t)) })
}

func machineIsGone(f *fixture) {
	victim := f.instances("web", dev1)[0].ID
	pod := f.podOn(victim, "lost", "lost")
	f.killAgent(dev1, victim)
	f.eventually("its Node and its Machine go, and its pod is left alone", func(ctx context.Context) error {
		if err := f.untouched(ctx, pod); err != nil {
			f.Fatal(err)
		}
		return f.gone(ctx, victim)
	})
	f.running("web", 4)
	f.settled("web", 4)
	if err := f.untouched(f.Context(), pod); err != nil {
		f.Error(err)
	}
}

func budgetAllowsLater(f *fixture) {
	victim, other := f.instances("web", dev1)[0].ID, f.instances("web", dev1)[1].ID
	pod := f.podOn(victim, "shop", "shop-1")
	f.budget("shop")
	f.condemn(victim)
	f.scale("web", 3)
	f.cordoned(victim)
	f.consistently(5*time.Second, "the budget holds the pod, and the pod its node", func(ctx context.Context) error {
		return errors.Join(f.untouched(ctx, pod), f.api.Get(ctx, client.ObjectKey{Name: victim}, &corev1.Node{}))
	})
	f.podOn(other, "shop", "shop-2")
	f.eventually("the pod is moved", func(ctx context.Context) error {
		// The Node is read first: if it is gone, the pod must be gone after that.
		node, err := f.there(ctx, victim, &corev1.Node{})
		if err != nil {
			return err
		}
		stays, err := f.there(ctx, pod.Name, pod)
		switch {
		case err != nil:
			return err
		case stays && !node:
			f.Fatal("the Node went before its pod")
		case stays:
			return fmt.Errorf("it is there, deletion %v", pod.DeletionTimestamp)
		}
		return nil
	})
	f.eventually("its Node and its Machine go", func(ctx context.Context) error { return f.gone(ctx, victim) })
	f.running("web", 3)
	f.settled("web", 3)
}

func budgetNeverAllows(f *fixture) {
	victim := f.instances("web", dev2)[0].ID
	pod := f.podOn(victim, "rock", "rock")
	f.budget("rock")
	f.condemn(victim)
	f.scale("web", 2)
	f.cordoned(victim)
	var deleteAt time.Time
	for _, i := range f.all(dev2) {
		if i.ID == victim {
			deleteAt = i.Drain.DeleteAt
		}
	}
	f.eventually("its Node and its Machine go", func(ctx context.Context) error { return f.gone(ctx, victim) })
	now := time.Now()
	if deleteAt.IsZero() || now.Before(deleteAt) || now.After(deleteAt.Add(patience)) {
		f.Errorf("it was gone at %v, and is deleted at %v", now, deleteAt)
	}
	for _, kind := range []string{"Machine", "NstanceMachine", "Node"} {
		f.event("DrainTimedOut", kind, victim, pod.Namespace+"/"+pod.Name, "rock-budget")
	}
	if err := f.untouched(f.Context(), pod); err != nil {
		f.Error(err)
	}
	f.running("web", 2)
	f.settled("web", 2)
}

// gone returns an error while an instance's Node or Machine exists.
func (f *fixture) gone(ctx context.Context, id string) error {
	for _, o := range []client.Object{&corev1.Node{}, &clusterv1.Machine{}} {
		if is, err := f.there(ctx, id, o); is || err != nil {
			return fmt.Errorf("%T is there: %w", o, err)
		}
	}
	return nil
}

// cordoned waits until a node is unschedulable.
func (f *fixture) cordoned(name string) {
	f.Helper()
	f.eventually("the node "+name+" takes no pods any more", func(ctx context.Context) error {
		var n corev1.Node
		if err := f.api.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil || n.Spec.Unschedulable {
			return err
		}
		return fmt.Errorf("unschedulable: %v, taints %v", n.Spec.Unschedulable, n.Spec.Taints)
	})
}

// killAgent kills an instance's machine, as a power failure does.
func (f *fixture) killAgent(shard, id string) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.temp, "agents", shard, id, "pid"))
	if err != nil {
		f.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		f.Fatalf("pid %q: %v", first, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.Fatal(err)
	}
}
