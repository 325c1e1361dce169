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

	"github.com/nstance/nstance/pkg/operator/planetest"
)

// TestDrain: a node is emptied before it goes, as the budgets of its pods allow, and for
// as long as the shard waits. One whose machine is gone already is not.
func TestDrain(t *testing.T) {
	w := begin(t, func(shard, config string) string {
		if shard == dev2 {
			return strings.Replace(config, `"default_drain_timeout": "1m"`, `"default_drain_timeout": "15s"`, 1)
		}
		return config
	})
	w.operate()
	w.running("web", 4)
	w.settled("web", 4)
	t.Run("the machine is gone", func(t *testing.T) { machineIsGone(w.in(t)) })
	t.Run("a budget that allows it in the end", func(t *testing.T) { budgetAllowsLater(w.in(t)) })
	t.Run("a budget that never allows it", func(t *testing.T) { budgetNeverAllows(w.in(t)) })
}

func machineIsGone(w *world) {
	victim := w.instances("web", dev1)[0].ID
	pod := w.podOn(victim, "lost", "lost")
	w.killAgent(dev1, victim)
	w.eventually("its Node and its Machine go, and its pod is left alone", func(ctx context.Context) error {
		if err := w.untouched(ctx, pod); err != nil {
			w.Fatal(err)
		}
		return w.gone(ctx, victim)
	})
	w.running("web", 4)
	w.settled("web", 4)
	if err := w.untouched(w.Context(), pod); err != nil {
		w.Error(err)
	}
}

func budgetAllowsLater(w *world) {
	victim, other := w.instances("web", dev1)[0].ID, w.instances("web", dev1)[1].ID
	pod := w.podOn(victim, "shop", "shop-1")
	w.budget("shop")
	w.condemn(victim)
	w.scale("web", 3)
	w.cordoned(victim)
	planetest.Consistently(w.T, 5*time.Second, "the budget holds the pod, and the pod its node", func(ctx context.Context) error {
		return errors.Join(w.untouched(ctx, pod), w.api.Get(ctx, client.ObjectKey{Name: victim}, &corev1.Node{}))
	})
	w.podOn(other, "shop", "shop-2")
	w.eventually("the pod is moved", func(ctx context.Context) error {
		// The Node is read first: if it is not there, the pod must not be there after that.
		node, err := w.there(ctx, victim, &corev1.Node{})
		if err != nil {
			return err
		}
		stays, err := w.there(ctx, pod.Name, pod)
		switch {
		case err != nil:
			return err
		case stays && !node:
			w.Fatal("the Node went before its pod")
		case stays:
			return fmt.Errorf("it is there, deletion %v", pod.DeletionTimestamp)
		}
		return nil
	})
	w.eventually("its Node and its Machine go", func(ctx context.Context) error { return w.gone(ctx, victim) })
	w.running("web", 3)
	w.settled("web", 3)
}

func budgetNeverAllows(w *world) {
	victim := w.instances("web", dev2)[0].ID
	pod := w.podOn(victim, "rock", "rock")
	w.budget("rock")
	w.condemn(victim)
	w.scale("web", 2)
	w.cordoned(victim)
	var deleteAt time.Time
	for _, i := range w.all(dev2) {
		if i.ID == victim {
			deleteAt = i.Drain.DeleteAt
		}
	}
	w.eventually("its Node and its Machine go", func(ctx context.Context) error { return w.gone(ctx, victim) })
	now := time.Now()
	if deleteAt.IsZero() || now.Before(deleteAt) || now.After(deleteAt.Add(time.Minute)) {
		w.Errorf("it was gone at %v, and is deleted at %v", now, deleteAt)
	}
	for _, kind := range []string{"Machine", "NstanceMachine", "Node"} {
		w.event("DrainTimedOut", kind, victim, pod.Namespace+"/"+pod.Name, "rock-budget")
	}
	if err := w.untouched(w.Context(), pod); err != nil {
		w.Error(err)
	}
	w.running("web", 2)
	w.settled("web", 2)
}

// gone is an error while an instance's Node or Machine is there.
func (w *world) gone(ctx context.Context, id string) error {
	for _, o := range []client.Object{&corev1.Node{}, &clusterv1.Machine{}} {
		if is, err := w.there(ctx, id, o); is || err != nil {
			return fmt.Errorf("%T is there: %w", o, err)
		}
	}
	return nil
}

// cordoned waits until nothing new is placed on a node.
func (w *world) cordoned(name string) {
	w.Helper()
	w.eventually("the node "+name+" takes no pods any more", func(ctx context.Context) error {
		var n corev1.Node
		if err := w.api.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil || n.Spec.Unschedulable {
			return err
		}
		return fmt.Errorf("unschedulable: %v, taints %v", n.Spec.Unschedulable, n.Spec.Taints)
	})
}

// killAgent ends an instance's machine the way a power cut does.
func (w *world) killAgent(shard, id string) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.temp, "agents", shard, id, "pid"))
	if err != nil {
		w.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		w.Fatalf("pid %q: %v", first, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.Fatal(err)
	}
}
