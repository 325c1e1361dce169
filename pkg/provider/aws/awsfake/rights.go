package awsfake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake/policy"
)

// This file is what each call needs to be allowed, by AWS's «Service Authorization
// Reference»: the things that it is about, and of each the condition keys that AWS knows.
// A call that may be about anything, as most that only look, needs its action on *.

// Rights are what whoever calls a Cloud is allowed, and as safe for concurrent use.
type Rights struct {
	cloud    *Cloud
	policies []policy.Policy
}

// Set sets the policies; none: everything is allowed.
func (g *Rights) Set(policies ...policy.Policy) {
	g.cloud.mu.Lock()
	defer g.cloud.mu.Unlock()
	g.policies = policies
}

// check refuses a call unless the policies allow all that it needs.
func (g *Rights) check(s service, name string, p *params) error {
	if len(g.policies) == 0 {
		return nil
	}
	for _, r := range g.needs(s, name, p) {
		if !policy.Allowed(g.policies, r) {
			return &Error{Code: s.forbidden, Status: s.forbiddenStatus, Message: fmt.Sprintf(
				"User: arn:aws:sts::%s:assumed-role/role/session is not authorized to perform: %s on resource: %s "+
					"because no identity-based policy allows the %s action", g.cloud.cfg.Account, r.Action, r.Resource, r.Action)}
		}
	}
	return nil
}

// needs returns what has to be allowed for a call, all of it. What can't be read, or is
// about what is not there, is refused for that later.
func (g *Rights) needs(s service, name string, p *params) []policy.Request {
	c := g.cloud
	action := s.name + ":" + name
	switch name {
	case "RunInstances":
		return launchNeeds(c, p)
	case "TerminateInstances":
		ids, _ := p.list("InstanceId")
		return machineNeeds(c, action, ids...)
	case "AttachNetworkInterface":
		return append(cardNeeds(c, action, p.get("NetworkInterfaceId")), machineNeeds(c, action, p.get("InstanceId"))...)
	case "DetachNetworkInterface":
		k, at := findAttachment(c, p.get("AttachmentId"), c.cfg.Now())
		if k == nil {
			return nil
		}
		return append(cardNeeds(c, action, k.id), machineNeeds(c, action, at.in.to.id)...)
	case "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses", "AssignIpv6Addresses", "UnassignIpv6Addresses":
		return cardNeeds(c, action, p.get("NetworkInterfaceId"))
	case "RegisterTargets", "DeregisterTargets":
		group, err := c.Balancing.targetGroup(p)
		if err != nil {
			return nil
		}
		return []policy.Request{{Action: action, Resource: group.ARN, Context: resourceTags(group.Tags)}}
	case "CompleteLifecycleAction", "SetInstanceHealth":
		return c.Scaling.needs(action, p)
	case "CreateSecret", "GetSecretValue", "PutSecretValue":
		return c.Secrets.needs(action, p)
	case "GetParameter", "PutParameter":
		return c.Parameters.needs(action, p)
	default:
		return []policy.Request{{Action: action, Resource: "*"}}
	}
}

// ofAccount is the ARN of a thing of EC2; images and snapshots are of no account.
func ofAccount(c *Cloud, kind, id string) string {
	account := c.cfg.Account
	if kind == "image" || kind == "snapshot" {
		account = ""
	}
	return "arn:aws:ec2:" + c.cfg.Region + ":" + account + ":" + kind + "/" + id
}

// launchNeeds: each thing that a launch uses, each that it makes, with the tags that it
// is made with, the tags themselves, and the role that the machine is given.
func launchNeeds(c *Cloud, p *params) []policy.Request {
	l, err := c.readLaunch(p)
	if err != nil {
		return nil
	}
	tags := requestedTags(p)
	out := []policy.Request{
		{Action: "ec2:RunInstances", Resource: ofAccount(c, "instance", "*"), Context: requestTags(tags["instance"])},
		{Action: "ec2:RunInstances", Resource: ofAccount(c, "volume", "*"), Context: requestTags(tags["volume"])},
		{Action: "ec2:RunInstances", Resource: ofAccount(c, "image", l.image.ID)},
	}
	use := func(arn string) { out = append(out, policy.Request{Action: "ec2:RunInstances", Resource: arn}) }
	for _, nic := range l.nics {
		out = append(out, policy.Request{
			Action: "ec2:RunInstances", Resource: ofAccount(c, "network-interface", "*"), Context: requestTags(tags["network-interface"]),
		})
		use(ofAccount(c, "subnet", nic.subnet))
		for _, group := range nic.groups {
			use(ofAccount(c, "security-group", group))
		}
	}
	if l.keyName != "" {
		use(ofAccount(c, "key-pair", l.keyName))
	}
	if l.spot {
		use(ofAccount(c, "spot-instances-request", "*"))
	}
	if group := p.get("Placement.GroupName"); group != "" {
		use(ofAccount(c, "placement-group", group))
	}
	for name, value := range p.values {
		if shape(name) == "BlockDeviceMapping.N.Ebs.SnapshotId" {
			use(ofAccount(c, "snapshot", value))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(tags)) {
		context := requestTags(tags[kind])
		context["ec2:CreateAction"] = "RunInstances"
		out = append(out, policy.Request{Action: "ec2:CreateTags", Resource: ofAccount(c, kind, "*"), Context: context})
	}
	if p.any("IamInstanceProfile") {
		profile := p.get("IamInstanceProfile.Name") + p.get("IamInstanceProfile.Arn")
		out = append(out, policy.Request{
			Action: "iam:PassRole", Resource: c.cfg.Profiles[profile], Context: map[string]string{"iam:PassedToService": "ec2.amazonaws.com"},
		})
	}
	return out
}

// requestedTags are the tags of a launch, by what they are for.
func requestedTags(p *params) map[string]map[string]string {
	out := map[string]map[string]string{}
	count, _ := p.count("TagSpecification")
	for n := range count {
		at := "TagSpecification." + strconv.Itoa(n+1)
		out[p.get(at+".ResourceType")], _ = readTagList(p, at+".Tag")
	}
	return out
}

func machineNeeds(c *Cloud, action string, ids ...string) (out []policy.Request) {
	for _, id := range ids {
		if m, ok := c.byID[id]; ok {
			out = append(out, policy.Request{Action: action, Resource: ofAccount(c, "instance", id), Context: resourceTags(m.launch.tags)})
		}
	}
	return out
}

func cardNeeds(c *Cloud, action, id string) []policy.Request {
	k, err := findCard(c, id)
	if err != nil {
		return nil
	}
	return []policy.Request{{Action: action, Resource: ofAccount(c, "network-interface", id), Context: resourceTags(k.tags)}}
}

func (s *Scaling) needs(action string, p *params) []policy.Request {
	m, ok := s.members[p.get("InstanceId")]
	if !ok {
		return nil
	}
	arn := fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/%s",
		s.cloud.cfg.Region, s.cloud.cfg.Account, "3b0e4a5c-0000-4000-8000-000000000000", m.Group)
	return []policy.Request{{Action: action, Resource: arn, Context: resourceTags(s.tags[m.Group])}}
}

func (k *Secrets) needs(action string, p *params) []policy.Request {
	name := p.get("SecretId") + p.get("Name")
	arn := "arn:aws:secretsmanager:" + k.cloud.cfg.Region + ":" + k.cloud.cfg.Account + ":secret:" + name
	if s := k.secret(name); s != nil {
		arn = s.arn
	}
	return []policy.Request{{Action: action, Resource: arn}}
}

func (s *Parameters) needs(action string, p *params) []policy.Request {
	name := p.get("Name")
	if m := parameterARN.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	return []policy.Request{{Action: action, Resource: s.arn(name)}}
}

func resourceTags(tags map[string]string) map[string]string {
	return keyed(tags, "aws:ResourceTag/", "ec2:ResourceTag/")
}

func requestTags(tags map[string]string) map[string]string { return keyed(tags, "aws:RequestTag/") }

func keyed(tags map[string]string, prefixes ...string) map[string]string {
	context := map[string]string{}
	for key, value := range tags {
		for _, prefix := range prefixes {
			context[prefix+key] = value
		}
	}
	return context
}
