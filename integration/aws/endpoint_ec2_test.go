//go:build integration

package aws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	balanced "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// endpoint is an AWS given by the environment, and the place in it where the suite may launch.
type endpoint struct {
	run                     string // the name and tag of everything that is created
	worlds, targets, plants int    // number created so far

	session       awsclient.Session
	client        *http.Client
	ec2           *ec2.Client
	balancing     *elb.Client
	vpc, zone     string
	subnet, small string
	image         string
	instanceType  string
	missingTarget string // the ARN of a deleted target group

	patience, eventual time.Duration
}

// paced launches at the rate that EC2 allows an account: otherwise the suite itself would be
// throttled, which it takes for an error.
type paced struct{ launches *rate.Limiter }

func (p paced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(body, []byte("Action=RunInstances&")) {
		if err := p.launches.Wait(r.Context()); err != nil {
			return nil, err
		}
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(again)
}

// openEndpoint determines what to launch and where, unless the environment says so.
func openEndpoint(t *testing.T) *endpoint {
	t.Helper()
	var number [4]byte
	_, err := rand.Read(number[:])
	must(t, err)
	e := &endpoint{run: "nstance-test-" + hex.EncodeToString(number[:]), client: &http.Client{Transport: paced{rate.NewLimiter(2, 4)}}}
	e.patience, e.eventual = timing()
	e.session, err = awsclient.Config{HTTPClient: e.client}.Open(t.Context())
	must(t, err)
	machines, err := e.session.SDK(awsclient.EC2)
	must(t, err)
	e.ec2 = ec2.NewFromConfig(machines)
	balancers, err := e.session.Brief(awsclient.LoadBalancing)
	must(t, err)
	e.balancing = elb.NewFromConfig(balancers)
	e.instanceType = cmp.Or(os.Getenv("NSTANCE_TEST_AWS_INSTANCE_TYPE"), "t3.micro")
	e.findSubnet(t)
	e.makeSmall(t)
	t.Cleanup(func() { e.sweep(t, e.run) }) // before the small subnet is deleted
	e.findImage(t)
	e.missingTarget = e.makeTarget(t)
	must(t, e.removeTarget(t.Context(), e.missingTarget))
	t.Logf("run %s: subnet %s, small subnet %s, image %s, %s", e.run, e.subnet, e.small, e.image, e.instanceType)
	return e
}

// stop stops an instance without the provider.
func (e *endpoint) stop(t *testing.T, vm provider.VM) {
	t.Helper()
	_, err := e.ec2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{vm.ProviderID}})
	must(t, err)
}

// plant launches an instance with exactly these tags, and terminates it at the end of the test.
func (e *endpoint) plant(t *testing.T, tags map[string]string) {
	t.Helper()
	e.plants++
	in := types.TagSpecification{ResourceType: types.ResourceTypeInstance}
	for key, value := range tags {
		in.Tags = append(in.Tags, types.Tag{Key: &key, Value: &value})
	}
	out, err := e.ec2.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: &e.image, InstanceType: types.InstanceType(e.instanceType), SubnetId: &e.subnet,
		MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), TagSpecifications: []types.TagSpecification{in},
		ClientToken: sdk.String(fmt.Sprintf("%s-%d", e.run, e.plants)),
		UserData:    sdk.String(base64.StdEncoding.EncodeToString([]byte(lastResort))),

		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
	})
	must(t, err)
	t.Cleanup(func() {
		e.within(t, "end "+*out.Instances[0].InstanceId, func(ctx context.Context) error {
			_, err := e.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*out.Instances[0].InstanceId}})
			return err
		})
	})
}

// target creates a target group, and deletes it at the end of the test.
func (e *endpoint) target(t *testing.T) string {
	t.Helper()
	arn := e.makeTarget(t)
	t.Cleanup(func() {
		e.within(t, "delete "+arn, func(ctx context.Context) error { return e.removeTarget(ctx, arn) })
	})
	return arn
}

// makeTarget creates a target group, which belongs to no load balancer and costs nothing.
func (e *endpoint) makeTarget(t *testing.T) string {
	t.Helper()
	e.targets++
	made, err := e.balancing.CreateTargetGroup(t.Context(), &elb.CreateTargetGroupInput{
		Name: sdk.String(fmt.Sprintf("%s-%d", e.run, e.targets)), VpcId: &e.vpc, Protocol: balanced.ProtocolEnumTcp, Port: sdk.Int32(80),
		TargetType: balanced.TargetTypeEnumInstance,
	}, func(o *elb.Options) { awsclient.Once(&o.Retryer, &o.APIOptions, nil) })
	must(t, err)
	return *made.TargetGroups[0].TargetGroupArn
}

func (e *endpoint) removeTarget(ctx context.Context, arn string) error {
	_, err := e.balancing.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: &arn})
	return err
}

// within retries until success; the test's own context may have ended.
func (e *endpoint) within(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), e.patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if retry.Wait(ctx, time.Second) != nil {
			t.Errorf("%s: not within %v: %v", what, e.patience, err)
			return
		}
	}
}
