package policy_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider/aws/awstest/policy"
)

func document(statements ...string) string {
	return `{"Version": "2012-10-17", "Statement": [` + strings.Join(statements, ", ") + `]}`
}

const (
	end = `{"Sid": "End", "Effect": "Allow", "Action": ["ec2:TerminateInstances"], "Resource": "arn:aws:ec2:*:1:instance/*",
		"Condition": {"StringEquals": {"aws:ResourceTag/a": ["b", "c"], "aws:ResourceTag/d": "e"}}}`
	look  = `{"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"}`
	never = `{"Effect": "Deny", "Action": "*", "Resource": "arn:aws:ec2:*:1:instance/i-?0"}`
	pass  = `{"Effect": "Allow", "Action": "iam:PassRole", "Resource": "*", "Condition": {"StringLike": {"iam:PassedToService": "ec2.*"}}}`
	grant = `{"Effect": "Allow", "Action": "kms:CreateGrant", "Resource": "*", "Condition": {"Bool": {"kms:GrantIsForAWSResource": "true"}}}`
	fresh = `{"Effect": "Allow", "Action": "ec2:RunInstances", "Resource": "*", "Condition": {"Null": {"aws:ResourceTag/a": "true"}}}`
)

func TestAllowed(t *testing.T) {
	var policies []policy.Policy
	for _, text := range []string{document(end, look), document(never, pass, grant, fresh)} {
		p, err := policy.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	const machine = "arn:aws:ec2:eu:1:instance/i-11"
	tags := map[string]string{"aws:ResourceTag/a": "c", "aws:ResourceTag/d": "e"}
	one := map[string]string{"aws:ResourceTag/a": "c"}
	other := map[string]string{"aws:ResourceTag/a": "e", "aws:ResourceTag/d": "e"}
	const role = "arn:aws:iam::1:role/r"
	passed := func(to string) map[string]string { return map[string]string{"iam:PassedToService": to} }
	for name, c := range map[string]struct {
		r    policy.Request
		want bool
	}{
		"all holds":                    {policy.Request{"ec2:TerminateInstances", machine, tags}, true},
		"in another case":              {policy.Request{"ec2:terminateinstances", machine, tags}, true},
		"another action":               {policy.Request{"ec2:StopInstances", machine, tags}, false},
		"another account":              {policy.Request{"ec2:TerminateInstances", "arn:aws:ec2:eu:2:instance/i-11", tags}, false},
		"one key is missing":           {policy.Request{"ec2:TerminateInstances", machine, one}, false},
		"no key at all":                {policy.Request{"ec2:TerminateInstances", machine, nil}, false},
		"another value":                {policy.Request{"ec2:TerminateInstances", machine, other}, false},
		"denied all the same":          {policy.Request{"ec2:TerminateInstances", "arn:aws:ec2:eu:1:instance/i-10", tags}, false},
		"of no one thing":              {policy.Request{"ec2:DescribeSubnets", "*", nil}, true},
		"of no one thing, and limited": {policy.Request{"ec2:TerminateInstances", "*", tags}, false},
		"like":                         {policy.Request{"iam:PassRole", role, passed("ec2.amazonaws.com")}, true},
		"not like":                     {policy.Request{"iam:PassRole", role, passed("ecs.amazonaws.com")}, false},
		"a truth": {
			policy.Request{"kms:CreateGrant", "arn:k", map[string]string{"kms:GrantIsForAWSResource": "True"}}, true,
		},
		"a key that has to be missing is": {policy.Request{"ec2:RunInstances", machine, map[string]string{"aws:ResourceTag/d": "e"}}, true},
		"and is not":                      {policy.Request{"ec2:RunInstances", machine, one}, false},
		"nothing speaks of it":            {policy.Request{"s3:GetObject", "arn:aws:s3:::b/k", nil}, false},
	} {
		if got := policy.Allowed(policies, c.r); got != c.want {
			t.Errorf("%s: allowed %v, want %v", name, got, c.want)
		}
	}
	if policy.Allowed(nil, policy.Request{Action: "ec2:DescribeSubnets", Resource: "*"}) {
		t.Error("without a policy something is allowed")
	}
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	for says, text := range map[string]string{
		"unexpected EOF":          `{`,
		"something follows":       document() + "{}",
		"version":                 `{"Version": "2008-10-17", "Statement": []}`,
		"unknown field":           document(`{"Effect": "Allow", "NotAction": "*", "Resource": "*"}`),
		"want Allow or Deny":      document(`{"Effect": "allow", "Action": "*", "Resource": "*"}`),
		"an action and":           document(`{"Effect": "Allow", "Action": [], "Resource": "*"}`),
		"want service:Action":     document(`{"Effect": "Allow", "Action": "RunInstances", "Resource": "*"}`),
		"want Bool, Null, String": document(`{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"ArnLike": {"a": "b"}}}`),
		`"${x}" has a variable`:   document(`{"Effect": "Allow", "Action": "*", "Resource": "${x}"}`),
		`"${y}" has a variable`:   document(`{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"Bool": {"a": "${y}"}}}`),
	} {
		if _, err := policy.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// FuzzParse: no document panics, and a valid one can be evaluated.
func FuzzParse(f *testing.F) {
	f.Add([]byte(document(end, look, never)), "ec2:TerminateInstances", "arn:aws:ec2:eu:1:instance/i-11", "aws:ResourceTag/a", "b")
	f.Fuzz(func(t *testing.T, text []byte, action, resource, key, value string) {
		p, err := policy.Parse(text)
		if err != nil {
			return
		}
		r := policy.Request{Action: action, Resource: resource, Context: map[string]string{key: value}}
		if policy.Allowed([]policy.Policy{p}, r) && policy.Allowed(nil, r) {
			t.Error("allowed by nothing")
		}
	})
}
