package awstest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/provider/aws/awstest/policy"
)

// This file has the permissions that each call needs, as in AWS's «Service Authorization
// Reference»: its resources, and the condition keys that AWS knows for each. A call without
// specific resources, as most Describe actions are, needs its action on *.

// IAM decides what the callers of a Cloud are allowed to do. It is safe for concurrent use.
type IAM struct {
	cloud    *Cloud
	policies []policy.Policy
}

// SetPolicies sets the policies; none: everything is allowed.
func (g *IAM) SetPolicies(policies ...policy.Policy) {
	g.cloud.mu.Lock()
	defer g.cloud.mu.Unlock()
	g.policies = policies
}

// authorize refuses a call unless the policies allow everything that it needs.
func (g *IAM) authorize(s service, name string, p *params) error {
	if len(g.policies) == 0 {
		return nil
	}
	for _, r := range g.required(s, name, p) {
		if !policy.Allowed(g.policies, r) {
			return &Error{Code: s.unauthorized, Status: s.unauthorizedStatus, Message: fmt.Sprintf(
				"User: arn:aws:sts::%s:assumed-role/role/session is not authorized to perform: %s on resource: %s "+
					"because no identity-based policy allows the %s action", g.cloud.cfg.Account, r.Action, r.Resource, r.Action)}
		}
	}
	return nil
}

// required returns all permissions that a call needs. A malformed call, or one with unknown
// resources, needs none: it is refused for that later.
func (g *IAM) required(s service, name string, p *params) []policy.Request {
	c := g.cloud
	action := s.name + ":" + name
	switch name {
	case "RunInstances":
		return launchPermissions(c, p)
	case "TerminateInstances":
		ids, _ := p.list("InstanceId")
		return instancePermissions(c, action, ids...)
	case "AttachNetworkInterface":
		return append(interfacePermissions(c, action, p.get("NetworkInterfaceId")), instancePermissions(c, action, p.get("InstanceId"))...)
	case "DetachNetworkInterface":
		k, at := findAttachment(c, p.get("AttachmentId"), c.cfg.Now())
		if k == nil {
			return nil
		}
		return append(interfacePermissions(c, action, k.id), instancePermissions(c, action, at.attachment.machine.id)...)
	case "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses", "AssignIpv6Addresses", "UnassignIpv6Addresses":
		return interfacePermissions(c, action, p.get("NetworkInterfaceId"))
	case "RegisterTargets", "DeregisterTargets":
		group, err := c.Balancing.targetGroup(p)
		if err != nil {
			return nil
		}
		return []policy.Request{{Action: action, Resource: group.ARN, Context: resourceTags(group.Tags)}}
	case "CompleteLifecycleAction", "SetInstanceHealth":
		return c.Scaling.required(action, p)
	case "CreateSecret", "GetSecretValue", "PutSecretValue":
		return c.Secrets.required(action, p)
	case "GetParameter", "PutParameter":
		return c.Parameters.required(action, p)
	default:
		return []policy.Request{{Action: action, Resource: "*"}}
	}
}

// ec2ARN returns the ARN of an EC2 resource; images and snapshots belong to no account.
func ec2ARN(c *Cloud, kind, id string) string {
	account := c.cfg.Account
	if kind == "image" || kind == "snapshot" {
		account = ""
	}
	return "arn:aws:ec2:" + c.cfg.Region + ":" + account + ":" + kind + "/" + id
}

// launchPermissions returns one permission for each resource that a launch uses or creates, for the
// tags that it sets, and for the role that it passes.
func launchPermissions(c *Cloud, p *params) []policy.Request {
	l, err := c.readLaunch(p)
	if err != nil {
		return nil
	}
	tags := requestedTags(p)
	out := []policy.Request{
		{Action: "ec2:RunInstances", Resource: ec2ARN(c, "instance", "*"), Context: requestTags(tags["instance"])},
		{Action: "ec2:RunInstances", Resource: ec2ARN(c, "volume", "*"), Context: requestTags(tags["volume"])},
		{Action: "ec2:RunInstances", Resource: ec2ARN(c, "image", l.image.ID)},
	}
	use := func(kind, id string) {
		out = append(out, policy.Request{Action: "ec2:RunInstances", Resource: ec2ARN(c, kind, id), Context: resourceTags(c.cfg.Tags[id])})
	}
	for _, nic := range l.nics {
		out = append(out, policy.Request{
			Action: "ec2:RunInstances", Resource: ec2ARN(c, "network-interface", "*"), Context: requestTags(tags["network-interface"]),
		})
		use("subnet", nic.subnet)
		groups := nic.groups
		if len(groups) == 0 {
			groups = []string{DefaultGroup(c.cfg.vpcOf(nic.subnet))}
		}
		for _, group := range groups {
			use("security-group", group)
		}
	}
	if l.keyName != "" {
		use("key-pair", l.keyName)
	}
	if l.spot {
		use("spot-instances-request", "*")
	}
	if group := p.get("Placement.GroupName"); group != "" {
		use("placement-group", group)
	}
	for name, value := range p.values {
		if parameterPattern(name) == "BlockDeviceMapping.N.Ebs.SnapshotId" {
			use("snapshot", value)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(tags)) {
		context := requestTags(tags[kind])
		context["ec2:CreateAction"] = "RunInstances"
		out = append(out, policy.Request{Action: "ec2:CreateTags", Resource: ec2ARN(c, kind, "*"), Context: context})
	}
	if p.any("IamInstanceProfile") {
		profile := p.get("IamInstanceProfile.Name") + p.get("IamInstanceProfile.Arn")
		out = append(out, policy.Request{
			Action: "iam:PassRole", Resource: c.cfg.Profiles[profile], Context: map[string]string{"iam:PassedToService": "ec2.amazonaws.com"},
		})
	}
	return out
}

// requestedTags returns the tags of a launch, by resource type.
func requestedTags(p *params) map[string]map[string]string {
	out := map[string]map[string]string{}
	count, _ := p.count("TagSpecification")
	for n := range count {
		at := "TagSpecification." + strconv.Itoa(n+1)
		out[p.get(at+".ResourceType")], _ = readTagList(p, at+".Tag")
	}
	return out
}

// DefaultGroup returns the id of a VPC's default security group, which interfaces without a group
// get.
func DefaultGroup(vpc string) string { return "sg-" + strings.TrimPrefix(vpc, "vpc-") }

func instancePermissions(c *Cloud, action string, ids ...string) (out []policy.Request) {
	for _, id := range ids {
		if m, ok := c.byID[id]; ok {
			out = append(out, policy.Request{Action: action, Resource: ec2ARN(c, "instance", id), Context: resourceTags(m.launch.tags)})
		}
	}
	return out
}

func interfacePermissions(c *Cloud, action, id string) []policy.Request {
	k, err := findInterface(c, id)
	if err != nil {
		return nil
	}
	return []policy.Request{{Action: action, Resource: ec2ARN(c, "network-interface", id), Context: resourceTags(k.tags)}}
}

func (s *Scaling) required(action string, p *params) []policy.Request {
	m, ok := s.members[p.get("InstanceId")]
	if !ok {
		return nil
	}
	arn := fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/%s",
		s.cloud.cfg.Region, s.cloud.cfg.Account, "3b0e4a5c-0000-4000-8000-000000000000", m.Group)
	return []policy.Request{{Action: action, Resource: arn, Context: resourceTags(s.tags[m.Group])}}
}

func (k *Secrets) required(action string, p *params) []policy.Request {
	name := p.get("SecretId") + p.get("Name")
	arn := "arn:aws:secretsmanager:" + k.cloud.cfg.Region + ":" + k.cloud.cfg.Account + ":secret:" + name
	if s := k.secret(name); s != nil {
		arn = s.arn
	}
	return []policy.Request{{Action: action, Resource: arn}}
}

func (s *Parameters) required(action string, p *params) []policy.Request {
	name := p.get("Name")
	if m := parameterARN.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	return []policy.Request{{Action: action, Resource: s.arn(name)}}
}

func resourceTags(tags map[string]string) map[string]string {
	return withPrefixes(tags, "aws:ResourceTag/", "ec2:ResourceTag/")
}

func requestTags(tags map[string]string) map[string]string {
	return withPrefixes(tags, "aws:RequestTag/")
}

func withPrefixes(tags map[string]string, prefixes ...string) map[string]string {
	context := map[string]string{}
	for key, value := range tags {
		for _, prefix := range prefixes {
			context[prefix+key] = value
		}
	}
	return context
}
