package awstest

import (
	"fmt"
	"maps"
)

// This file implements EC2 Auto Scaling.

// Member is a machine in an Auto Scaling group.
type Member struct {
	Group         string
	Hook          string // the lifecycle hook that it waits for; empty: it is in service
	Unhealthy     bool   // it was reported as unhealthy
	RespectsGrace bool   // the report respects the group's grace period, as is the default
	Abandoned     bool   // its hook was completed with ABANDON
}

func scalingActions() map[string]action {
	return map[string]action{
		"CompleteLifecycleAction": {
			parameterSet([]string{"AutoScalingGroupName", "LifecycleHookName", "InstanceId", "LifecycleActionResult", "LifecycleActionToken"}),
			onScaling((*Scaling).completeLifecycleAction),
		},
		"SetInstanceHealth": {
			parameterSet([]string{"InstanceId", "HealthStatus", "ShouldRespectGracePeriod"}), onScaling((*Scaling).setInstanceHealth),
		},
	}
}

// Scaling is the Auto Scaling service of a Cloud. It is safe for concurrent use.
type Scaling struct {
	cloud   *Cloud
	members map[string]*Member           // by machine
	tags    map[string]map[string]string // by group
}

func onScaling(do func(*Scaling, *params) (any, error)) func(*Cloud, *params) (any, error) {
	return func(c *Cloud, p *params) (any, error) { return do(c.Scaling, p) }
}

// Join adds a machine to an Auto Scaling group, where it waits for a lifecycle hook unless hook is
// empty. It returns an error if the machine is unknown.
func (s *Scaling) Join(id, group, hook string) error {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	if _, err := s.cloud.find(id); err != nil {
		return err
	}
	s.members[id] = &Member{Group: group, Hook: hook}
	return nil
}

// Tag sets the tags of a group.
func (s *Scaling) Tag(group string, tags map[string]string) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	s.tags[group] = maps.Clone(tags)
}

// Member returns a machine's membership. It returns an error if the machine is in no group.
func (s *Scaling) Member(id string) (Member, error) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	m, ok := s.members[id]
	if !ok {
		return Member{}, fmt.Errorf("machine %.80q is in no group", id)
	}
	return *m, nil
}

// Leave removes a machine from its group.
func (s *Scaling) Leave(id string) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	delete(s.members, id)
}

func (s *Scaling) completeLifecycleAction(p *params) (any, error) {
	verdict := p.get("LifecycleActionResult")
	if verdict != "CONTINUE" && verdict != "ABANDON" {
		return nil, bad("ValidationError", "Lifecycle action result '%.20s': want CONTINUE or ABANDON", verdict)
	}
	for _, name := range []string{"AutoScalingGroupName", "LifecycleHookName", "InstanceId"} {
		if p.get(name) == "" {
			return nil, bad("ValidationError", "1 validation error detected: Value null at '%s'", name)
		}
	}
	m, ok := s.members[p.get("InstanceId")]
	if !ok || m.Group != p.get("AutoScalingGroupName") || m.Hook != p.get("LifecycleHookName") {
		return nil, bad("ValidationError", "No active Lifecycle Action found with instance ID %.80s", p.get("InstanceId"))
	}
	m.Hook, m.Abandoned = "", verdict == "ABANDON"
	return emptyReply("CompleteLifecycleAction", versionScaling, "autoscaling"), nil
}

func (s *Scaling) setInstanceHealth(p *params) (any, error) {
	status := p.get("HealthStatus")
	if status != "Healthy" && status != "Unhealthy" {
		return nil, bad("ValidationError", "Health status '%.20s': want Healthy or Unhealthy", status)
	}
	const grace = "ShouldRespectGracePeriod"
	spared, err := p.flag(grace)
	if err != nil {
		return nil, err
	}
	m, ok := s.members[p.get("InstanceId")]
	if !ok {
		return nil, bad("ValidationError", "Instance Id not found - No managed instance found for instance ID: %.80s", p.get("InstanceId"))
	}
	m.Unhealthy, m.RespectsGrace = status == "Unhealthy", spared || !p.has(grace)
	return emptyReply("SetInstanceHealth", versionScaling, "autoscaling"), nil
}
