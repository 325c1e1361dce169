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

// instance is a draining instance with a drain time of a minute.
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
	pooled := func(m *clusterv1.Machine) *clusterv1.Machine {
		m.Labels = map[string]string{clusterv1.MachinePoolNameLabel: "p"}
		return m
	}
	end := machine(clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/copy")
	excluded := machine(clusterv1.ExcludeNodeDrainingAnnotation)
	held := pooled(machine(clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/copy"))
	held.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
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
		view nodeView
		want act
		why  string // a part of the reason
	}{
		"no instance":                 {nodeView{node: node}, leave, ""},
		"running":                     {nodeView{instance: phase(nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING), node: node}, leave, ""},
		"deleting":                    {nodeView{instance: phase(nstancev1.InstancePhase_INSTANCE_PHASE_DELETING), node: node}, leave, ""},
		"acknowledged already":        {nodeView{instance: acked, node: node}, leave, ""},
		"machine stopped":             {nodeView{instance: state("stopped"), node: node}, leave, ""},
		"machine failed":              {nodeView{instance: state("failed"), node: node}, leave, ""},
		"machine deleted":             {nodeView{instance: state("deleted")}, leave, ""},
		"machine deleting":            {nodeView{instance: state("deleting"), node: node}, leave, ""},
		"machine stopping":            {nodeView{instance: state("stopping"), node: node}, empty, ""},
		"no provider state":           {nodeView{instance: state(""), node: node}, empty, ""},
		"unknown provider state":      {nodeView{instance: state("unknown"), node: node}, empty, ""},
		"node":                        {nodeView{instance: instance(nil), node: node}, empty, ""},
		"no node":                     {nodeView{instance: instance(nil)}, acknowledge, "no node"},
		"node unknown":                {nodeView{instance: instance(nil), nodeErr: down}, hold, "unknown"},
		"hook":                        {nodeView{instance: instance(nil), node: node, machine: hook}, hold, "/backup"},
		"hook, Machine remains":       {nodeView{instance: instance(nil), node: node, machine: idle}, empty, ""},
		"hook, but no node":           {nodeView{instance: instance(nil), machine: hook}, acknowledge, "no node"},
		"hook of a pool's Machine":    {nodeView{instance: instance(nil), node: node, machine: pooled(idle.DeepCopy())}, hold, "pre-drain"},
		"later hook":                  {nodeView{instance: instance(nil), node: node, machine: pooled(end.DeepCopy())}, empty, ""},
		"later hook, no node":         {nodeView{instance: instance(nil), machine: pooled(end.DeepCopy())}, hold, "/copy"},
		"later hook, Machine remains": {nodeView{instance: instance(nil), machine: end}, acknowledge, "no node"},
		"later hook, excluded":        {nodeView{instance: instance(nil), node: node, machine: held}, hold, "pre-terminate"},
		"deadline, with a later hook": {
			nodeView{instance: instance(nil), machine: pooled(end.DeepCopy()), now: noon.Add(time.Hour)}, tooLate, "",
		},

		"excluded":               {nodeView{instance: instance(nil), node: node, machine: excluded}, acknowledge, "excluded"},
		"excluded, unknown node": {nodeView{instance: instance(nil), nodeErr: down, machine: excluded}, acknowledge, "excluded"},
		"other annotations":      {nodeView{instance: instance(nil), node: node, machine: machine("x")}, empty, ""},
		"deadline":               {nodeView{instance: instance(nil), node: node, now: noon.Add(time.Minute)}, tooLate, ""},
		"deadline, with a hook":  {nodeView{instance: instance(nil), node: node, machine: hook, now: noon.Add(time.Hour)}, tooLate, ""},
		"deadline, node unknown": {nodeView{instance: instance(nil), nodeErr: down, now: noon.Add(time.Hour)}, tooLate, ""},
		"deadline, no node":      {nodeView{instance: instance(nil), now: noon.Add(time.Hour)}, acknowledge, ""},
		"before the deadline":    {nodeView{instance: instance(nil), node: node, now: noon.Add(time.Minute - 1)}, empty, ""},
		"no deadline":            {nodeView{instance: forever, node: node, now: noon.Add(time.Hour)}, empty, ""},
	} {
		if c.view.now.IsZero() {
			c.view.now = noon
		}
		got := decide(c.view)
		if got.act != c.want || !strings.Contains(got.why, c.why) {
			t.Errorf("%s: %+v, want %s with the reason %q", name, got, c.want, c.why)
		}
	}
}

func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		age, left, want time.Duration
	}{
		"at first":           {0, time.Minute, time.Second},
		"after a while":      {30 * time.Second, time.Minute, 3 * time.Second},
		"after long":         {time.Hour, time.Minute, 5 * time.Second},
		"near the deadline":  {time.Hour, 1200 * time.Millisecond, 1200 * time.Millisecond},
		"after the deadline": {time.Hour, -time.Second, time.Millisecond},
		"clock set back":     {-time.Hour, time.Minute, time.Second},
	} {
		i := instance(func(i *nstancev1.InstanceStatus) { i.Drain.DeleteAt = at(c.left) })
		if got := pause(i, noon.Add(-c.age), noon); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := pause(instance(func(i *nstancev1.InstanceStatus) { i.Drain = nil }), noon, noon); got != time.Second {
		t.Errorf("without a deadline: %s, want 1s", got)
	}
}
