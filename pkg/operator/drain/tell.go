package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The reasons of events, and what they are all about.
const (
	reasonHeld    = "DrainHeld"
	reasonTooLate = "DrainTimedOut"
	action        = "Drain"
	reporter      = "nstance-operator"
)

// podsTold is how many pods an event names.
const podsTold = 8

// late says once that a drain's time is up, and what was left.
func (r *Reconciler) late(ctx context.Context, d *drain, v view, m machines) {
	if d.told {
		return
	}
	if v.node != nil {
		if err := r.inspect(ctx, d, v); err != nil {
			log.FromContext(ctx).Error(err, "look once more at a node whose instance goes") // what was seen before is told
		}
	}
	note := lateNote(d, v.nodeErr)
	if note == "" {
		return
	}
	d.told = true
	log.FromContext(ctx).Info("the drain's time is up", "note", note)
	r.tell(m, reasonTooLate, note)
	if v.node == nil {
		return
	}
	if err := r.tellOnNode(ctx, v.node, reasonTooLate, note); err != nil {
		log.FromContext(ctx).Error(err, "make an event", "node", v.node.Name)
	}
}

// inspect looks once more at what is on a node, without touching it.
func (r *Reconciler) inspect(ctx context.Context, d *drain, v view) error {
	clientset, err := r.Workload.Clientset()
	if err != nil {
		return err
	}
	rules, err := r.rulesOf(ctx, v.machine)
	if err != nil {
		return err
	}
	pods, err := podsOf(ctx, helper(ctx, clientset, v.node), v.node, rules)
	if err != nil {
		return err
	}
	d.look(pods.rest(d.left), d.held)
	return nil
}

// rest are the pods that have not gone, with what is known of why from a look before.
func (s sorted) rest(before []leftover) []leftover {
	left := s.stay
	for i := range s.evict {
		l := leftover{name(&s.evict[i]), "no time was left to evict it"}
		if at := slices.IndexFunc(before, func(b leftover) bool { return b.pod == l.pod }); at >= 0 {
			l = before[at]
		}
		left = append(left, l)
	}
	slices.SortFunc(left, func(a, b leftover) int { return cmp.Compare(a.pod, b.pod) })
	return left
}

// lateNote says in words what a drain's end leaves behind; empty: nothing.
func lateNote(d *drain, nodeErr error) string {
	note := ""
	if d.held != "" {
		note = "; the drain was held back: " + d.held
	}
	if len(d.left) > 0 {
		note += "; still on its node: " + list(d.left)
	}
	if nodeErr != nil {
		note += "; what is on its node is not known: " + nodeErr.Error()
	}
	if note == "" {
		return ""
	}
	return "The time to drain is up and the instance goes" + note
}

func list(left []leftover) string {
	var b strings.Builder
	for i, l := range left {
		if i == podsTold {
			fmt.Fprintf(&b, ", and %d more", len(left)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", l.pod, strings.TrimSuffix(l.why, "."))
	}
	return b.String()
}

// tell makes an event on what stands for an instance.
func (r *Reconciler) tell(m machines, reason, note string) {
	var on []runtime.Object
	if m.core != nil {
		on = append(on, m.core)
	}
	if m.infra != nil {
		on = append(on, m.infra)
	}
	for _, o := range on {
		r.Recorder.Eventf(o, nil, corev1.EventTypeWarning, reason, action, "%s", short(note))
	}
}

// tellOnNode makes an event in the cluster that the node is in, which may be another
// one than the recorder's.
func (r *Reconciler) tellOnNode(ctx context.Context, n *corev1.Node, reason, note string) error {
	err := r.Workload.Client().Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: n.Name + "-"},
		EventTime:           metav1.NewMicroTime(r.Now()),
		ReportingController: reporter,
		ReportingInstance:   reporter,
		Type:                corev1.EventTypeWarning,
		Reason:              reason,
		Action:              action,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
		Note:                short(note),
	})
	if err != nil {
		return fmt.Errorf("make an event on node %s: %w", n.Name, err)
	}
	return nil
}

// short cuts a note to what an event can hold.
func short(note string) string {
	const most = 1000
	if len(note) <= most {
		return note
	}
	return strings.ToValidUTF8(note[:most], "") + "…"
}
