package machine

import (
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// gone reports whether there is certainly no instance any more, though there was.
func gone(s *scope) bool {
	return s.instance.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED || s.absent && known(s.machine)
}

// known reports whether a shard has told of the instance at some time.
func known(m *v1beta1.NstanceMachine) bool {
	return m.Status.Phase != "" || m.Spec.IdempotencyKey != ""
}

// observe is the status that follows from what is known. What is not known now stays as
// it was seen last.
func observe(s *scope, o outcome, now time.Time) v1beta1.NstanceMachineStatus {
	to := *s.machine.Status.DeepCopy()
	m := s.machine
	if m.Spec.Shard != "" {
		to.FailureDomain = string(m.Spec.Shard)
	}
	if i := s.instance; i != nil {
		to.Phase = phase(i.GetPhase())
		if found := addresses(i); len(found) > 0 {
			to.Addresses = found
		}
	} else if gone(s) {
		to.Phase = phase(nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
	}
	if m.Spec.ProviderID != "" && works(s.instance) {
		to.Initialization.Provisioned = new(true)
	}
	if info := nodeInfo(s); info != (v1beta1.NodeInfo{}) {
		to.NodeInfo = info
	}
	set := func(kind string, is bool, reason, message string) {
		setCondition(&to, m.Generation, now, kind, is, reason, message)
	}
	set(v1beta1.ConditionPaused, false, reasonNotPaused, "")
	switch silent, _ := s.state.Silent(now); {
	case !s.configured:
	case silent:
		set(v1beta1.ConditionShardReachable, false, reasonUnreachable, unreachable(m))
	case s.state.Reachable && !o.unreachable: // else the next news of the shard tell
		set(v1beta1.ConditionShardReachable, true, reasonAnswers, "")
	}
	if reason, message := terminating(s, o); reason != "" {
		set(v1beta1.ConditionTerminating, true, reason, message)
	}
	if is, reason, message := ready(s, o); reason != "" {
		set(v1beta1.ConditionReady, is, reason, message)
	}
	return to
}

// paused is a status that says so, and nothing else that is new.
func paused(was v1beta1.NstanceMachineStatus, generation int64, now time.Time) v1beta1.NstanceMachineStatus {
	to := *was.DeepCopy()
	setCondition(&to, generation, now, v1beta1.ConditionPaused, true, reasonPaused, "")
	return to
}

func setCondition(to *v1beta1.NstanceMachineStatus, generation int64, now time.Time, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&to.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func phase(p nstancev1.InstancePhase) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "INSTANCE_PHASE_"))
}

// addresses are what the machine is reached by.
func addresses(i *nstancev1.InstanceStatus) []clusterv1.MachineAddress {
	const most = 32
	var all []clusterv1.MachineAddress
	if i.GetHostname() != "" {
		all = append(all, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: i.GetHostname()})
	}
	for _, text := range i.GetIps() {
		ip, err := netip.ParseAddr(text)
		if err != nil || len(all) == most {
			continue
		}
		kind := clusterv1.MachineInternalIP
		if ip.IsGlobalUnicast() && !ip.IsPrivate() {
			kind = clusterv1.MachineExternalIP
		}
		all = append(all, clusterv1.MachineAddress{Type: kind, Address: text})
	}
	return all
}

// nodeInfo is what is known of a machine's node by its type.
func nodeInfo(s *scope) v1beta1.NodeInfo {
	return infoOf(s.group, orElse(s.instance.GetInstanceType(), s.machine.Spec.InstanceType))
}

// infoOf is so for a type in a group; an empty one is the group's.
func infoOf(g *nstancev1.GroupStatus, instanceType string) v1beta1.NodeInfo {
	arch := g.GetCapacity().GetArch()
	if arch != "amd64" && arch != "arm64" || instanceType != "" && instanceType != g.GetInstanceType() {
		return v1beta1.NodeInfo{}
	}
	return v1beta1.NodeInfo{Architecture: arch, OperatingSystem: "linux"}
}
