package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Reasons and action of events.
const (
	reasonHeld      = "DrainHeld"
	reasonAmbiguous = "NodeAmbiguous"
	reasonFound     = "NodeFound"
	reasonNoNode    = "NoNode"
	reasonBlocked   = "DrainBlocked"
	reasonUnblocked = "NothingInTheWay"
	reasonTooLate   = "DrainTimedOut"
	action          = "Drain"
	reporter        = "nstance-operator"
)

// podsTold bounds the pods that an event names.
const podsTold = 8

// late reports once that a drain's time is up, and what is left.
func (r *Reconciler) late(ctx context.Context, d *drain, v nodeView, m machines) {
	if d.told {
		return
	}
	if v.node != nil {
		if err := r.inspect(ctx, d, v); err != nil {
			log.FromContext(ctx).Error(err, "inspect the node of an instance that is being removed") // the previous findings are reported
		}
	}
	note := lateNote(d, v.nodeErr)
	if note == "" {
		return
	}
	d.told = true
	log.FromContext(ctx).Info("the drain's time is up", "note", note)
	r.recordEvent(m, reasonTooLate, note)
	if v.node == nil {
		return
	}
	if err := r.recordOnNode(ctx, v.node, reasonTooLate, note); err != nil {
		log.FromContext(ctx).Error(err, "record an event", "node", v.node.Name)
	}
}

// inspect lists once more what is on a node, without changing it.
func (r *Reconciler) inspect(ctx context.Context, d *drain, v nodeView) error {
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
	left := pods.rest(d.left)
	if now := r.Now(); len(left) == 0 && waitsForVolumes(v.node, v.machine, d.empty(now), now) {
		if left, err = attached(ctx, clientset, v.node); err != nil {
			return err
		}
	}
	d.observe(left, d.held)
	return nil
}

// rest returns the pods that have not gone, with reasons known from the previous pass.
func (s sorted) rest(before []leftover) []leftover {
	left := s.stay
	for i := range s.evict {
		l := leftover{pod: name(&s.evict[i]), why: "no time was left to evict it"}
		if at := slices.IndexFunc(before, func(b leftover) bool { return b.pod == l.pod }); at >= 0 {
			l = before[at]
		}
		left = append(left, l)
	}
	slices.SortFunc(left, func(a, b leftover) int { return cmp.Compare(a.pod, b.pod) })
	return left
}

// lateNote describes what a drain's end leaves behind; empty if nothing.
func lateNote(d *drain, nodeErr error) string {
	note := ""
	if d.held != "" {
		note = "; the drain was held back: " + d.held
	}
	if len(d.left) > 0 {
		note += "; still on its node: " + list(d.left)
	}
	if nodeErr != nil && nodeErr.Error() != d.held {
		note += "; the pods on its node are unknown: " + nodeErr.Error()
	}
	if note == "" {
		return ""
	}
	return "The drain timed out and the instance is being removed" + note
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

// recordEvent records an event on the instance's objects. The recorder counts an event of the
// same reason as one more of the first, with the note of that, unless the version of an object
// differs: so the Machine's event refers to the NstanceMachine, whose conditions change first.
func (r *Reconciler) recordEvent(m machines, reason, note string) {
	var related runtime.Object
	if m.infra != nil {
		related = m.infra
		r.Recorder.Eventf(m.infra, nil, corev1.EventTypeWarning, reason, action, "%s", short(note))
	}
	if m.core != nil {
		r.Recorder.Eventf(m.core, related, corev1.EventTypeWarning, reason, action, "%s", short(note))
	}
}

// recordOnNodes records on the candidate Nodes why none is drained.
func (r *Reconciler) recordOnNodes(ctx context.Context, err error) {
	var doubt *ambiguousError
	if !errors.As(err, &doubt) {
		return
	}
	for i := range doubt.Nodes[:min(len(doubt.Nodes), nodesTold)] {
		if err := r.recordOnNode(ctx, &doubt.Nodes[i], reasonAmbiguous, doubt.Why); err != nil {
			log.FromContext(ctx).Error(err, "record an event", "node", doubt.Nodes[i].Name)
		}
	}
}

// nodesTold bounds the Nodes that get such an event.
const nodesTold = 8

// recordOnNode records an event in the node's cluster, which may differ from the recorder's.
func (r *Reconciler) recordOnNode(ctx context.Context, n *corev1.Node, reason, note string) error {
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
		return fmt.Errorf("record an event on node %s: %w", n.Name, err)
	}
	return nil
}

// short truncates a note to the limit of an event.
func short(note string) string {
	const most = 1000
	if len(note) <= most {
		return note
	}
	return strings.ToValidUTF8(note[:most], "") + "…"
}
