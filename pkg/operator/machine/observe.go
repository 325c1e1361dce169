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

// gone reports whether the instance existed and certainly does no longer.
func gone(s *scope) bool {
	return s.instance.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED || s.absent && known(s.machine)
}

// known reports whether a shard has ever reported the instance.
func known(m *v1beta1.NstanceMachine) bool {
	return m.Status.Phase != "" || m.Spec.IdempotencyKey != ""
}

// observe returns the status. What is unknown now keeps its last value.
func observe(s *scope, o stepResult, now time.Time) v1beta1.NstanceMachineStatus {
	to := *s.machine.Status.DeepCopy()
	m := s.machine
	to.ObservedGeneration = m.Generation
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
	created(&to, s, o)
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
	case s.state.Reachable && !o.unreachable: // otherwise decided when the shard is reachable
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

// created updates what the status says of a creation that has failed.
func created(to *v1beta1.NstanceMachineStatus, s *scope, o stepResult) {
	id := s.machine.Spec.InstanceID
	switch {
	case o.creation != nil:
		to.Creation = o.creation
		meta.RemoveStatusCondition(&to.Conditions, v1beta1.ConditionTerminating) // of the failed instance
	case to.Initialization.Provisioned != nil:
		to.Creation = nil
	case to.Creation != nil && id != "" && id != to.Creation.InstanceID:
		to.Creation.RetryTime = nil // under way
	}
}

// paused returns the status of a paused object: only the condition Paused changes.
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

// addresses returns the machine's addresses.
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

// nodeInfo returns what is known of a machine's node from its instance type.
func nodeInfo(s *scope) v1beta1.NodeInfo {
	return infoOf(s.group, orElse(s.instance.GetInstanceType(), s.machine.Spec.InstanceType))
}

// infoOf returns it for a type in a group; an empty type means the group's.
func infoOf(g *nstancev1.GroupStatus, instanceType string) v1beta1.NodeInfo {
	arch := g.GetCapacity().GetArch()
	if arch != "amd64" && arch != "arm64" || instanceType != "" && instanceType != g.GetInstanceType() {
		return v1beta1.NodeInfo{}
	}
	return v1beta1.NodeInfo{Architecture: arch, OperatingSystem: "linux"}
}
