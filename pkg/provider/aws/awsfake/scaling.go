package awsfake

import (
	"fmt"
	"maps"
)

// This file is EC2 Auto Scaling.

// Member is a machine of an Auto Scaling group.
type Member struct {
	Group     string
	Hook      string // the lifecycle hook that holds it up; empty: it is in service
	Unhealthy bool   // somebody said so
	Spared    bool   // and that the group may mind its grace period, as it does unless it is told
	Abandoned bool   // its hook was completed with ABANDON
}

func scaling() map[string]action {
	return map[string]action{
		"CompleteLifecycleAction": {
			known([]string{"AutoScalingGroupName", "LifecycleHookName", "InstanceId", "LifecycleActionResult", "LifecycleActionToken"}),
			scale((*Scaling).completeLifecycleAction),
		},
		"SetInstanceHealth": {known([]string{"InstanceId", "HealthStatus", "ShouldRespectGracePeriod"}), scale((*Scaling).setInstanceHealth)},
	}
}

// Scaling is EC2 Auto Scaling of a Cloud, and as safe for concurrent use.
type Scaling struct {
	cloud   *Cloud
	members map[string]*Member           // by machine
	tags    map[string]map[string]string // by group
}

func scale(do func(*Scaling, *params) (any, error)) func(*Cloud, *params) (any, error) {
	return func(c *Cloud, p *params) (any, error) { return do(c.Scaling, p) }
}

// Join puts a machine into an Auto Scaling group, where a hook holds it up unless hook
// is empty. It returns an error when there is no such machine.
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

// Member returns what the groups know of a machine. It returns an error when it is in
// none.
func (s *Scaling) Member(id string) (Member, error) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	m, ok := s.members[id]
	if !ok {
		return Member{}, fmt.Errorf("machine %.80q is in no group", id)
	}
	return *m, nil
}

// Leave takes a machine out of its group.
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
	return done("CompleteLifecycleAction", versionScaling, "autoscaling"), nil
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
	m.Unhealthy, m.Spared = status == "Unhealthy", spared || !p.has(grace)
	return done("SetInstanceHealth", versionScaling, "autoscaling"), nil
}
