package awstest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const group = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/web/0123456789abcdef"

// send sends a signed call to a service, and returns status and body. body is a form, or JSON.
func (f *fixture) send(t *testing.T, service, action, body string) (int, string) {
	t.Helper()
	r := f.request(t, action, nil)
	r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/ec2/", "/"+service+"/", 1))
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/x-amz-json-1.1")
		r.Header.Set("X-Amz-Target", map[string]string{"ssm": "AmazonSSM", "secretsmanager": "secretsmanager"}[service]+"."+action)
	} else {
		version := map[string]string{"elasticloadbalancing": "2015-12-01", "autoscaling": "2011-01-01"}[service]
		form := url.Values{"Action": {action}, "Version": {version}}
		for pair := range strings.FieldsSeq(body) {
			name, value, _ := strings.Cut(pair, "=")
			form.Set(name, value)
		}
		body = form.Encode()
	}
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// step is a call, and a part of its reply.
type step struct {
	service, action, body string
	status                int
	says                  string
}

func (f *fixture) play(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		status, body := f.send(t, s.service, s.action, s.body)
		if status != s.status || !strings.Contains(body, s.says) {
			t.Errorf("%s %.200s: %d %s; want %d with %q", s.action, s.body, status, body, s.status, s.says)
		}
	}
}

func TestTargets(t *testing.T) {
	const elb = "elasticloadbalancing"
	f := newFixture(t, func(cfg *awstest.Config) {
		cfg.TargetGroups = []awstest.TargetGroup{{ARN: group, Port: 80, VPC: "vpc-0000000a"}, {ARN: group + "b", Port: 80, VPC: "vpc-0000000b"}}
		cfg.TargetLimit, cfg.Draining = 1, time.Minute
	})
	a, b := f.run(t, nil), f.run(t, map[string]string{"ClientToken": "b"})
	to := func(group string, ids ...string) string {
		body := "TargetGroupArn=" + group
		for n, id := range ids {
			body += fmt.Sprintf(" Targets.member.%d.Id=%s", n+1, id)
		}
		return body
	}
	f.play(t, []step{
		{elb, "RegisterTargets", to(group, a), 400, "<Code>InvalidTarget</Code><Message>The following targets are not in a running state"},
	})
	f.pass(time.Minute)
	f.play(t, []step{
		{elb, "RegisterTargets", to(group), 400, "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>"},
		{elb, "RegisterTargets", to(group+"c", a), 400, "TargetGroupNotFound"},
		{elb, "RegisterTargets", to(group+"b", a), 400, "InvalidTarget"},
		{elb, "RegisterTargets", to(group, "i-00000000"), 400, "InvalidTarget"},
		{elb, "RegisterTargets", to(group, a) + " Colour=red", 400, "UnknownParameter"},
		{elb, "RegisterTargets", to(group, a), 200,
			`<RegisterTargetsResponse xmlns="http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/">` +
				`<RegisterTargetsResult></RegisterTargetsResult><ResponseMetadata><RequestId>`},
		{elb, "RegisterTargets", to(group, a), 200, ""},
		{elb, "RegisterTargets", to(group, b), 400, "TooManyTargets"},
		{elb, "DescribeTargetHealth", to(group), 200, "<Target><Id>" + a + "</Id><Port>80</Port></Target>"},
		{elb, "DescribeTargetHealth", to(group, b), 200, "<State>unused</State><Reason>Target.NotRegistered</Reason>"},
		{elb, "DeregisterTargets", to(group, b), 200, "<DeregisterTargetsResult>"},
		{elb, "DeregisterTargets", to(group, "no-such-vm"), 400, "InvalidTarget"},
		{elb, "DeregisterTargets", to(group, a), 200, ""},
		{elb, "DescribeTargetHealth", to(group), 200, "<State>draining</State>"},
	})
	f.pass(time.Minute)
	f.play(t, []step{
		{elb, "DescribeTargetHealth", to(group), 200, "<TargetHealthDescriptions></TargetHealthDescriptions>"},
		{elb, "RegisterTargets", to(group, a), 200, ""},
	})
	if err := f.Stop(a); err != nil {
		t.Fatal(err)
	}
	f.play(t, []step{{elb, "DescribeTargetHealth", to(group), 200, "<State>unused</State><Reason>Target.InvalidState</Reason>"}})
}

func TestSecrets(t *testing.T) {
	const keeper = "secretsmanager"
	f := newFixture(t, nil)
	binary := func(name, token string) string {
		return fmt.Sprintf(`{"SecretId":%q,"ClientRequestToken":%q,"SecretBinary":"AAE="}`, name, token)
	}
	token := func(c string) string { return strings.Repeat(c, 32) }
	create := func(name, token, value string) string {
		return fmt.Sprintf(`{"Name":%q,"ClientRequestToken":%q,"SecretString":%q}`, name, token, value)
	}
	f.play(t, []step{
		{keeper, "GetSecretValue", `{"SecretId":"a/b"}`, 400, `"__type":"ResourceNotFoundException"`},
		{keeper, "CreateSecret", create("a/b", token("1"), "one"), 200, `"VersionId":"` + token("1")},
		{keeper, "CreateSecret", create("a/b", token("1"), "one"), 200, `"VersionId":"` + token("1")},
		{keeper, "CreateSecret", create("a/b", token("1"), "two"), 400, "ResourceExistsException"},
		{keeper, "CreateSecret", create("a/b", token("2"), "one"), 400, "ResourceExistsException"},
		{keeper, "CreateSecret", create("a b", token("1"), "one"), 400, "ValidationException"},
		{keeper, "CreateSecret", create("c", "short", "one"), 400, "InvalidParameterException"},
		{keeper, "CreateSecret", create("c", token("1"), strings.Repeat("x", 64<<10+1)), 400, "ValidationException"},
		{keeper, "CreateSecret", `{"Name":5}`, 400, "UnknownParameter"},
		{keeper, "CreateSecret", `{"Colour":"red"}`, 400, "UnknownParameter"},
		{keeper, "CreateSecret", `{"Name":["a"]}`, 400, "SerializationException"},
		{keeper, "CreateSecret", `{} {}`, 400, "SerializationException"},
		{keeper, "GetSecretValue", `{"SecretId":"a/b"}`, 200, `"SecretString":"one"`},
		{keeper, "PutSecretValue", binary("a/b", token("3")), 200, token("3")},
		{keeper, "PutSecretValue", binary("x", token("3")), 400, "ResourceNotFoundException"},
		{keeper, "GetSecretValue", `{"SecretId":"a/b"}`, 200, `"SecretBinary":"AAE="`},
		{keeper, "DropSecret", `{}`, 400, "UnknownOperationException"},
	})
	if err := f.Secrets.ScheduleDeletion("a/b"); err != nil || f.Secrets.ScheduleDeletion("x") == nil {
		t.Errorf("schedule a deletion: %v", err)
	}
	f.play(t, []step{
		{keeper, "GetSecretValue", `{"SecretId":"a/b"}`, 400, "InvalidRequestException"},
		{keeper, "CreateSecret", create("a/b", token("4"), "one"), 400, "InvalidRequestException"},
	})
}

func TestParameters(t *testing.T) {
	const store = "ssm"
	f := newFixture(t, nil)
	put := func(name, value, more string) string {
		return fmt.Sprintf(`{"Name":%q,"Value":%q,"Type":"SecureString"%s}`, name, value, more)
	}
	f.play(t, []step{
		{store, "GetParameter", `{"Name":"/a/b"}`, 400, `"__type":"ParameterNotFound"`},
		{store, "PutParameter", put("/a/b", "one", ""), 200, `"Version":1`},
		{store, "PutParameter", put("/a/b", "two", ""), 400, "ParameterAlreadyExists"},
		{store, "PutParameter", put("/a/b", "two", `,"Overwrite":"true"`), 400, "UnknownParameter"},
		{store, "PutParameter", put("/a/b", "two", `,"Overwrite":true`), 200, `"Version":2`},
		{store, "PutParameter", put("/aws/b", "two", ""), 400, "ValidationException"},
		{store, "PutParameter", put("/c", strings.Repeat("x", 4097), ""), 400, "ValidationException"},
		{store, "GetParameter", `{"Name":"/a/b","WithDecryption":true}`, 200, `"Value":"two"`},
		{store, "GetParameter", `{"Name":"arn:aws:ssm:us-east-1:123456789012:parameter/a/b","WithDecryption":true}`, 200, `"Value":"two"`},
		{store, "GetParameter", `{"Name":"/a/b","WithDecryption":false}`, 200, `"Value":"AQICAHh`},
	})
}

func TestScaling(t *testing.T) {
	const scaling = "autoscaling"
	f := newFixture(t, nil)
	id := f.run(t, nil)
	if f.Scaling.Join("i-0", "g", "h") == nil || f.Scaling.Join(id, "g", "h") != nil {
		t.Error("a machine that is there joins a group, and no other does")
	}
	done := "AutoScalingGroupName=g LifecycleHookName=h LifecycleActionResult=CONTINUE InstanceId=" + id
	ill := "HealthStatus=Unhealthy ShouldRespectGracePeriod=false InstanceId="
	f.play(t, []step{
		{scaling, "CompleteLifecycleAction", strings.Replace(done, "=h", "=x", 1), 400, "No active Lifecycle Action found"},
		{scaling, "CompleteLifecycleAction", strings.Replace(done, "CONTINUE", "YES", 1), 400, "ValidationError"},
		{scaling, "CompleteLifecycleAction", done, 200, "<CompleteLifecycleActionResult>"},
		{scaling, "CompleteLifecycleAction", done, 400, "No active Lifecycle Action found"},
		{scaling, "SetInstanceHealth", ill + "i-0", 400, "ValidationError"},
		{scaling, "SetInstanceHealth", ill + id, 200, "<SetInstanceHealthResult>"},
	})
	if m, err := f.Scaling.Member(id); err != nil || m != (awstest.Member{Group: "g", Unhealthy: true}) {
		t.Errorf("the machine is %+v, %v", m, err)
	}
	f.play(t, []step{{scaling, "SetInstanceHealth", "HealthStatus=Unhealthy InstanceId=" + id, 200, ""}})
	if m, err := f.Scaling.Member(id); err != nil || !m.RespectsGrace {
		t.Errorf("without a word on the grace period the machine is %+v, %v", m, err)
	}
	f.Scaling.Leave(id)
	if _, err := f.Scaling.Member(id); err == nil {
		t.Error("who left is still there")
	}
}

// TestServicesAreOneCloud: faults, throttles and calls span all services, each with its own error
// codes.
func TestServicesAreOneCloud(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Throttles = []awstest.Throttle{{Burst: 4}} })
	f.FailNext("GetParameter", 1, awstest.Fault{Code: "InternalServerError", Status: 500})
	f.play(t, []step{
		{"ssm", "GetParameter", `{"Name":"/a"}`, 500, `"__type":"InternalServerError"`},
		{"ssm", "GetParameter", `{"Name":"/a"}`, 400, "ParameterNotFound"},
		{"secretsmanager", "GetSecretValue", `{"SecretId":"a"}`, 400, "ResourceNotFoundException"},
		{"autoscaling", "SetInstanceHealth", "HealthStatus=Healthy InstanceId=i-0", 400, "ValidationError"},
		{"elasticloadbalancing", "DescribeTargetHealth", "TargetGroupArn=x", 400, "TargetGroupNotFound"},
		{"elasticloadbalancing", "DescribeTargetHealth", "TargetGroupArn=x", 400, "<Code>Throttling</Code>"},
		{"ssm", "GetParameter", `{"Name":"/a"}`, 400, `"__type":"ThrottlingException"`},
		{"autoscaling", "RunInstances", "", 400, "InvalidAction"},
	})
	if calls := f.Calls("GetParameter"); len(calls) != 3 || calls[0].Service != "ssm" || calls[0].Code != "InternalServerError" {
		t.Errorf("calls: %+v", calls)
	}
}
