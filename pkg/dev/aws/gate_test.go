package aws_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nstance/nstance/pkg/dev/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/sigv4"
)

// TestGate: calls of a web page are refused, whatever its browser sends, and so are those of a
// program without keys.
func TestGate(t *testing.T) {
	world := aws.CloudConfig()
	world.Boot, world.Lag = 0, 0
	cloud := awstest.New(world)
	server, metadata := serve(t, aws.Config{Cloud: cloud})
	id := cloud.AddMachine(aws.SubnetA, nil, false)
	kill := server + "/-/machines/" + id + "/kill"
	for _, url := range []string{kill, server + "/", server + "/-/anything"} {
		for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
			if code, got := do(t, sign(t, good, request(t, http.MethodPost, url, header, value))); code != http.StatusForbidden {
				t.Errorf("%s with %s: %d %s", url, header, code, got)
			}
		}
		r := request(t, http.MethodPost, url, "", "")
		r.Host = "rebound.example:8995"
		if code, got := do(t, sign(t, good, r)); code != http.StatusMisdirectedRequest {
			t.Errorf("%s by another name: %d %s", url, code, got)
		}
		for _, keys := range []sdk.Credentials{
			{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "other"}, {AccessKeyID: "AKIDOTHER", SecretAccessKey: "secret"},
			{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", SessionToken: "t"},
		} {
			if url == server+"/" {
				continue // tested below: a service call has a body
			}
			if code, got := do(t, sign(t, keys, request(t, http.MethodPost, url, "", ""))); code != http.StatusForbidden {
				t.Errorf("%s with the keys %+v: %d %s", url, keys, code, got)
			}
		}
		if code, got := ask(t, http.MethodPost, url, "", ""); code < 400 || code > 499 {
			t.Errorf("%s without keys: %d %s", url, code, got)
		}
	}
	old := sign(t, good, request(t, http.MethodPost, kill, "", ""))
	old.Header.Set("X-Amz-Date", time.Now().Add(-time.Hour).UTC().Format("20060102T150405Z"))
	if code, got := do(t, old); code != http.StatusForbidden {
		t.Errorf("an old signature: %d %s", code, got)
	}
	token := request(t, http.MethodPut, metadata(id)+"/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	token.Host = "rebound.example"
	if code, got := do(t, token); code != http.StatusMisdirectedRequest {
		t.Errorf("metadata by another name: %d %s", code, got)
	}
	if machines := cloud.Machines(); len(machines) != 1 || machines[0].State != "running" {
		t.Errorf("the machine is now %+v", machines)
	}
}

// TestServicesNeedKeys: services accept only requests that are signed with a known key.
func TestServicesNeedKeys(t *testing.T) {
	server, _ := serve(t, aws.Config{Cloud: awstest.New(aws.CloudConfig())})
	for key, want := range map[string]int{"AKIDEXAMPLE": http.StatusBadRequest, "AKIDOTHER": http.StatusUnauthorized} {
		const form = "Action=DescribeNothing&Version=2016-11-15"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server, strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		keys := sdk.Credentials{AccessKeyID: key, SecretAccessKey: "secret"}
		if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, sigv4.Sum([]byte(form)), "ec2", aws.Region, time.Now()); err != nil {
			t.Fatal(err)
		}
		code, got := do(t, r)
		if code != want {
			t.Errorf("%s: %d %s, want %d", key, code, got, want)
		}
	}
}

// TestRolesOrderNothing: the keys of a machine's role are valid for services, but not for manual
// calls.
func TestRolesOrderNothing(t *testing.T) {
	world := aws.CloudConfig()
	world.Boot, world.Lag = 0, 0
	cloud := awstest.New(world)
	server, metadata := serve(t, aws.Config{Cloud: cloud})
	id := cloud.AddMachine(aws.SubnetA, nil, false)
	_, token := ask(t, http.MethodPut, metadata(id)+"/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	_, said := ask(t, http.MethodGet, metadata(id)+"/latest/meta-data/iam/security-credentials/"+aws.Role, "X-aws-ec2-metadata-token", token)
	var role struct {
		AccessKeyID, SecretAccessKey, Token string //nolint:gosec // made up
	}
	if err := json.Unmarshal([]byte(said), &role); err != nil || !strings.HasPrefix(role.AccessKeyID, "ASIA") {
		t.Fatalf("no keys: %s, %v", said, err)
	}
	keys := sdk.Credentials{AccessKeyID: role.AccessKeyID, SecretAccessKey: role.SecretAccessKey, SessionToken: role.Token}
	if secret, known := cloud.IAM.Secret(role.AccessKeyID, role.Token); !known || secret != role.SecretAccessKey {
		t.Error("the cloud does not know the keys that it handed out")
	}
	if code, got := do(t, sign(t, keys, request(t, http.MethodPost, server+"/-/machines/"+id+"/kill", "", ""))); code != http.StatusForbidden {
		t.Errorf("%d %s", code, got)
	}
}
