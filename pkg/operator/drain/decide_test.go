package drain

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(d)) }

// instance is one that drains and has a minute for it.
func instance(change func(*nstancev1.InstanceStatus)) *nstancev1.InstanceStatus {
	i := &nstancev1.InstanceStatus{
		Phase:         nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING,
		ProviderState: "running",
		Drain:         &nstancev1.DrainStatus{DeleteAt: at(time.Minute)},
	}
	if change != nil {
		change(i)
	}
	return i
}

func machine(annotation string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: "", "else": ""}}}
}

func TestDecide(t *testing.T) {
	node := &corev1.Node{}
	idle := machine(clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup")
	hook := idle.DeepCopy()
	hook.DeletionTimestamp = &metav1.Time{Time: noon}
	excluded := machine(clusterv1.ExcludeNodeDrainingAnnotation)
	state := func(s string) *nstancev1.InstanceStatus {
		return instance(func(i *nstancev1.InstanceStatus) { i.ProviderState = s })
	}
	phase := func(p nstancev1.InstancePhase) *nstancev1.InstanceStatus {
		return instance(func(i *nstancev1.InstanceStatus) { i.Phase = p })
	}
	acked := instance(func(i *nstancev1.InstanceStatus) { i.Drain.AckedAt = at(0) })
	forever := instance(func(i *nstancev1.InstanceStatus) { i.Drain = nil })
	down := errors.New("no connection")
	for name, c := range map[string]struct {
		view view
		want act
		why  string // a part of it
	}{
		"no instance":             {view{node: node}, leave, ""},
		"it runs":                 {view{instance: phase(nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING), node: node}, leave, ""},
		"it is being deleted":     {view{instance: phase(nstancev1.InstancePhase_INSTANCE_PHASE_DELETING), node: node}, leave, ""},
		"somebody was first":      {view{instance: acked, node: node}, leave, ""},
		"machine stopped":         {view{instance: state("stopped"), node: node}, leave, ""},
		"machine failed":          {view{instance: state("failed"), node: node}, leave, ""},
		"machine gone":            {view{instance: state("deleted")}, leave, ""},
		"machine being removed":   {view{instance: state("deleting"), node: node}, leave, ""},
		"machine stopping":        {view{instance: state("stopping"), node: node}, empty, ""},
		"machine not seen":        {view{instance: state(""), node: node}, empty, ""},
		"state not known":         {view{instance: state("unknown"), node: node}, empty, ""},
		"it has a node":           {view{instance: instance(nil), node: node}, empty, ""},
		"it has no node":          {view{instance: instance(nil)}, acknowledge, "no node"},
		"node not known":          {view{instance: instance(nil), nodeErr: down}, hold, "not known"},
		"hook":                    {view{instance: instance(nil), node: node, machine: hook}, hold, "/backup"},
		"hook that is idle":       {view{instance: instance(nil), node: node, machine: idle}, empty, ""},
		"hook, but no node":       {view{instance: instance(nil), machine: hook}, acknowledge, "no node"},
		"excluded":                {view{instance: instance(nil), node: node, machine: excluded}, acknowledge, "excluded"},
		"excluded, unknown node":  {view{instance: instance(nil), nodeErr: down, machine: excluded}, acknowledge, "excluded"},
		"other annotations":       {view{instance: instance(nil), node: node, machine: machine("x")}, empty, ""},
		"time is up":              {view{instance: instance(nil), node: node, now: noon.Add(time.Minute)}, tooLate, ""},
		"time is up, with a hook": {view{instance: instance(nil), node: node, machine: hook, now: noon.Add(time.Hour)}, tooLate, ""},
		"time is up, unknown":     {view{instance: instance(nil), nodeErr: down, now: noon.Add(time.Hour)}, tooLate, ""},
		"time is up, no node":     {view{instance: instance(nil), now: noon.Add(time.Hour)}, acknowledge, ""},
		"just before":             {view{instance: instance(nil), node: node, now: noon.Add(time.Minute - 1)}, empty, ""},
		"no end":                  {view{instance: forever, node: node, now: noon.Add(time.Hour)}, empty, ""},
	} {
		if c.view.now.IsZero() {
			c.view.now = noon
		}
		got := decide(c.view)
		if got.act != c.want || !strings.Contains(got.why, c.why) {
			t.Errorf("%s: %+v, want %s because of %q", name, got, c.want, c.why)
		}
	}
}

func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		age, left, want time.Duration
	}{
		"at first":       {0, time.Minute, time.Second},
		"after a while":  {30 * time.Second, time.Minute, 3 * time.Second},
		"after long":     {time.Hour, time.Minute, 5 * time.Second},
		"near the end":   {time.Hour, 1200 * time.Millisecond, 1200 * time.Millisecond},
		"after the end":  {time.Hour, -time.Second, time.Millisecond},
		"clock set back": {-time.Hour, time.Minute, time.Second},
	} {
		i := instance(func(i *nstancev1.InstanceStatus) { i.Drain.DeleteAt = at(c.left) })
		if got := pause(i, noon.Add(-c.age), noon); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := pause(instance(func(i *nstancev1.InstanceStatus) { i.Drain = nil }), noon, noon); got != time.Second {
		t.Errorf("without an end: %s, want 1s", got)
	}
}
