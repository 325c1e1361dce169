package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

func TestLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		s := spec(t, 1)
		s.Attempt = 999_999_999
		vm := must(t, p, s)
		made := cloud.Machines()[0]
		if made.Token != string(s.ID)+"-"+large+"-999999999" || len(made.Token) > 64 || string(made.UserData) != string(s.Userdata) ||
			made.Subnet != large || made.Type != "t3.small" || made.Params["MetadataOptions.HttpTokens"] != "required" ||
			made.Params["MetadataOptions.HttpPutResponseHopLimit"] != "1" ||
			made.Tags["Name"] != s.Hostname || made.Tags["nstance:instance-id"] != string(s.ID) {
			t.Errorf("made %+v", made)
		}
		if vm.ProviderID != made.ID || vm.State != provider.StatePending || vm.Subnet != large || vm.Reason != "" {
			t.Errorf("answered %+v", vm)
		}
	})
}

// TestLaunchArgs: args are used, and the first interface gets the subnet.
func TestLaunchArgs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		s := spec(t, 1)
		s.Args = map[string]any{
			"ImageId": image, "EbsOptimized": true, "IamInstanceProfile": map[string]any{"Name": "agent"},
			"MetadataOptions":       map[string]any{"HttpTokens": "optional", "HttpPutResponseHopLimit": 2},
			"InstanceMarketOptions": map[string]any{"MarketType": "spot", "SpotOptions": map[string]any{"ValidUntil": "2001-02-03T04:05:06Z"}},
			"BlockDeviceMappings": []any{
				map[string]any{"DeviceName": "/dev/xvda", "Ebs": map[string]any{"VolumeSize": 20, "VolumeType": "gp3", "Encrypted": true}},
			},
			"NetworkInterfaces": []any{
				map[string]any{"DeviceIndex": 1, "SubnetId": small},
				map[string]any{"DeviceIndex": 0, "Groups": []any{"sg-00000001"}},
			},
			"TagSpecifications": []any{
				map[string]any{"ResourceType": "volume", "Tags": []any{map[string]any{"Key": "team", "Value": "ops"}}},
				map[string]any{"ResourceType": "instance", "Tags": []any{map[string]any{"Key": "Name", "Value": "web"}}},
			},
		}
		vm := must(t, p, s)
		made := cloud.Machines()[0]
		for name, want := range map[string]string{
			"EbsOptimized": "true", "IamInstanceProfile.Name": "agent", "MetadataOptions.HttpTokens": "optional",
			"MetadataOptions.HttpPutResponseHopLimit": "2", "InstanceMarketOptions.MarketType": "spot",
			"InstanceMarketOptions.SpotOptions.ValidUntil": "2001-02-03T04:05:06Z", "BlockDeviceMapping.1.DeviceName": "/dev/xvda",
			"BlockDeviceMapping.1.Ebs.VolumeSize": "20", "NetworkInterface.1.SubnetId": small, "NetworkInterface.2.SubnetId": large,
			"NetworkInterface.2.SecurityGroupId.1": "sg-00000001", "SubnetId": "", "TagSpecification.2.ResourceType": "volume",
		} {
			if got := made.Params[name]; got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if vm.Tags["Name"] != "web" || vm.Hostname != s.Hostname || len(vm.Addresses) != 2 ||
			len(vm.DNSNames) != 1 || !strings.HasPrefix(vm.DNSNames[0], "ip-"+strings.ReplaceAll(vm.Addresses[0].String(), ".", "-")+".") {
			t.Errorf("answered %+v", vm)
		}
	})
}

func TestRefusedSpecs(t *testing.T) {
	many := func(s *provider.Spec) {
		for n := range 42 {
			s.Tags[fmt.Sprint("tag", n)] = ""
		}
	}
	for name, c := range map[string]struct {
		change func(*provider.Spec)
		says   string
	}{
		"no subnet":        {func(s *provider.Spec) { s.Subnet = "" }, "subnet"},
		"another's subnet": {func(s *provider.Spec) { s.Subnet = "local" }, `"local"`},
		"no type":          {func(s *provider.Spec) { s.InstanceType = "" }, "instance_type"},
		"userdata":         {func(s *provider.Spec) { s.Userdata = make([]byte, 16<<10+1) }, "16385 bytes"},
		"too many tags":    {many, "at most 50"},
		"attempt":          {func(s *provider.Spec) { s.Attempt = 1_000_000_000 }, "attempt 1000000000"},
		"reserved tag":     {func(s *provider.Spec) { s.Tags["aws:x"] = "" }, "aws:"},
		"long tag":         {func(s *provider.Spec) { s.Tags["x"] = strings.Repeat("é", 257) }, "257"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			s := spec(t, 1)
			c.change(&s)
			if _, err := p.Create(t.Context(), s); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want ErrInvalid that says %s", name, err, c.says)
			}
			if calls := cloud.Calls(""); len(calls) != 0 {
				t.Errorf("%s: called %v", name, calls)
			}
		})
	}
}

// TestLargestUserdata: the largest userdata and as many tags as EC2 allows are accepted.
func TestLargestUserdata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newWorld(t, nil)
		s := spec(t, 1)
		s.Userdata = make([]byte, 16<<10)
		for n := range 50 - len(s.Tags) - 2 {
			s.Tags[fmt.Sprint("tag", n)] = strings.Repeat("é", 256)
		}
		if vm := must(t, p, s); len(vm.Tags) != 50 {
			t.Errorf("%d tags", len(vm.Tags))
		}
	})
}

// TestLostReply: a launch is sent once, and the next call finds its result.
func TestLostReply(t *testing.T) {
	for name, fault := range map[string]awstest.Fault{
		"lost":       {Lost: true},
		"dropped":    {Dropped: true},
		"500":        {Code: "InternalError", Status: http.StatusInternalServerError},
		"503":        {Code: "Unavailable", Status: http.StatusServiceUnavailable},
		"a new code": {Code: "BrandNew", Status: http.StatusBadRequest},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			cloud.FailNext("RunInstances", 1, fault)
			if _, err := p.Create(t.Context(), spec(t, 1)); err == nil || provider.Definite(err) {
				t.Errorf("%s: %v, want an unknown outcome", name, err)
			}
			if n := len(cloud.Calls("RunInstances")); n != 1 {
				t.Errorf("%s: %d attempts, want 1", name, n)
			}
			vm := must(t, p, spec(t, 1))
			if made := cloud.Machines(); len(made) != 1 || made[0].ID != vm.ProviderID {
				t.Errorf("%s: made %+v", name, made)
			}
		})
	}
}

// TestSlowReply: for a caller that gives up, the outcome is unknown.
func TestSlowReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		cloud.FailNext("RunInstances", 1, awstest.Fault{Delay: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Create(ctx, spec(t, 1)); !errors.Is(err, context.DeadlineExceeded) || provider.Definite(err) {
			t.Errorf("create: %v", err)
		}
		if len(cloud.Machines()) != 1 {
			t.Error("nothing was made: the fault is another one than this test is about")
		}
	})
}

// TestMismatch: other args for the same instance, while reads are stale.
func TestMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newWorld(t, func(cfg *awstest.Config) { cfg.Lag = 20 * time.Second })
		first := must(t, p, spec(t, 1))
		changed := spec(t, 1)
		changed.Userdata = []byte("other")
		began := time.Now()
		vm := must(t, p, changed)
		if vm.Ref() != first.Ref() || time.Since(began) == 0 {
			t.Errorf("the second create found %v after %v, the first made %v", vm.Ref(), time.Since(began), first.Ref())
		}
	})
}

// TestMismatchUnseen: a used token whose instance is not seen for a minute belongs to a refused
// launch. Until then the outcome is unknown, which a caller whose time ends before the next look-up
// learns at once; its next call continues the search.
func TestMismatchUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		mismatch := awstest.Fault{Code: "IdempotentParameterMismatch", Status: http.StatusBadRequest}
		cloud.FailNext("RunInstances", 3, mismatch)
		began := time.Now()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := p.Create(ctx, spec(t, 1))
			cancel()
			if !errors.Is(err, provider.ErrUsed) || provider.Definite(err) || ctx.Err() == nil && time.Since(began) > 30*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			time.Sleep(10 * time.Second)
		}
		_, err := p.Create(t.Context(), spec(t, 1))
		if took := time.Since(began); !errors.Is(err, provider.ErrSpent) || took < time.Minute || took > 65*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		cloud.FailNext("RunInstances", 1, mismatch)
		cloud.FailNext("DescribeInstances", 1, awstest.Fault{Code: "UnauthorizedOperation", Status: http.StatusForbidden})
		if _, err := p.Create(t.Context(), spec(t, 1)); err == nil || provider.Definite(err) {
			t.Errorf("the look-up is not allowed: %v", err)
		}
	})
}

// TestMismatchOfAnotherSubnet: an instance is found by its tag, whatever its token.
func TestMismatchOfAnotherSubnet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, func(cfg *awstest.Config) { cfg.Lag = 5 * time.Second })
		first := must(t, p, spec(t, 1))
		cloud.FailNext("RunInstances", 1, awstest.Fault{Code: "IdempotentParameterMismatch", Status: http.StatusBadRequest})
		moved := spec(t, 1)
		moved.Subnet, moved.Attempt = small, 3
		if vm := must(t, p, moved); vm.Ref() != first.Ref() {
			t.Errorf("found %v, want %v", vm.Ref(), first.Ref())
		}
	})
}

// TestTerminated: an instance is returned in its current state, as long as EC2 lists it.
func TestTerminated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newWorld(t, nil)
		vm := must(t, p, spec(t, 1))
		if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
			t.Fatal(err)
		}
		again := must(t, p, spec(t, 1))
		if again.Ref() != vm.Ref() || again.State != provider.StateDeleted || !strings.Contains(again.Reason, "User initiated") {
			t.Errorf("create of what is gone: %+v", again)
		}
		time.Sleep(2 * time.Hour)
		if _, err := p.Create(t.Context(), spec(t, 1)); !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("create of what is forgotten: %v", err)
		}
	})
}

// TestYoungDeath: EC2 accepts an instance, then terminates it with a reason.
func TestYoungDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, func(cfg *awstest.Config) { cfg.Boot = 5 * time.Second })
		cloud.FailBoots(1, "Client.InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state")
		vm := must(t, p, spec(t, 1))
		time.Sleep(6 * time.Second)
		got, err := provider.GetOne(t.Context(), p, vm.Ref())
		if err != nil || got.State != provider.StateDeleted ||
			got.Reason != "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state" {
			t.Errorf("get: %+v, %v", got, err)
		}
	})
}
