package aws_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/smithy-go"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// kinds are the kinds of errors; the outcome of an error without a kind is unknown.
func kinds() []error {
	return []error{
		provider.ErrNotFound, provider.ErrSubnetFull, provider.ErrQuota, provider.ErrThrottled, provider.ErrInvalid, provider.ErrUnauthorized,
		provider.ErrUnsupported,
	}
}

func TestErrorKinds(t *testing.T) {
	for _, c := range []struct {
		code   string
		status int
		kind   error // nil: unknown
	}{
		{"InsufficientFreeAddressesInSubnet", 400, provider.ErrSubnetFull},
		{"InsufficientInstanceCapacity", 500, provider.ErrQuota},
		{"InsufficientCapacity", 500, provider.ErrQuota},
		{"InsufficientHostCapacity", 500, provider.ErrQuota},
		{"InstanceLimitExceeded", 400, provider.ErrQuota},
		{"VcpuLimitExceeded", 400, provider.ErrQuota},
		{"MaxSpotInstanceCountExceeded", 400, provider.ErrQuota},
		{"SpotMaxPriceTooLow", 400, provider.ErrQuota},
		{"Unsupported", 400, provider.ErrQuota},
		{"RequestResourceCountExceeded", 400, provider.ErrQuota},
		{"InsufficientCidrBlocks", 400, provider.ErrSubnetFull},
		{"UnsupportedOperation", 400, provider.ErrInvalid},
		{"TagPolicyViolation", 400, provider.ErrInvalid},
		{"VolumeTypeNotAvailableInZone", 400, provider.ErrInvalid},
		{"InstanceCreditSpecification.NotSupported", 400, provider.ErrInvalid},
		{"RequestLimitExceeded", 503, provider.ErrThrottled},
		{"Throttling", 400, provider.ErrThrottled},
		{"ThrottlingException", 400, provider.ErrThrottled},
		{"SomethingElse", 429, provider.ErrThrottled},
		{"UnauthorizedOperation", 403, provider.ErrUnauthorized},
		{"AuthFailure", 401, provider.ErrUnauthorized},
		{"AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403, provider.ErrUnauthorized},
		{"AccountDisabled", 400, provider.ErrUnauthorized},
		{"InvalidClientTokenId", 403, provider.ErrUnauthorized},
		{"RequestExpired", 400, nil},
		{"ExpiredToken", 400, nil},
		{"UnknownVolumeType.Unsupported", 400, provider.ErrInvalid},
		{"OptInRequired", 401, provider.ErrUnauthorized},
		{"InvalidInstanceID.NotFound", 400, provider.ErrNotFound},
		{"InvalidParameterValue", 400, provider.ErrInvalid},
		{"InvalidAMIID.NotFound", 400, provider.ErrInvalid},
		{"InvalidSubnetID.NotFound", 400, provider.ErrInvalid},
		{"InvalidSecurityGroupID.NotFound", 400, provider.ErrInvalid},
		{"InvalidSecurity", 403, provider.ErrUnauthorized},
		{"MissingAuthenticationToken", 403, provider.ErrUnauthorized},
		{"MissingParameter", 400, provider.ErrInvalid},
		{"UnknownParameter", 400, provider.ErrInvalid},
		{"TagLimitExceeded", 400, provider.ErrInvalid},
		{"InternalError", 500, nil},
		{"InternalFailure", 500, nil},
		{"Unavailable", 503, nil},
		{"ServiceUnavailable", 503, nil},
		{"InvalidState", 500, nil}, // the outcome of a 5xx is unknown
		{"RequestTimeout", 400, nil},
		{"NeverHeardOf", 400, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			cloud.FailNext("RunInstances", 1, awstest.Fault{Code: c.code, Status: c.status, Message: "because"})
			_, err := p.Create(t.Context(), spec(t, 1))
			if err == nil || !strings.Contains(err.Error(), c.code) {
				t.Errorf("%d %s: %v", c.status, c.code, err)
			}
			for _, kind := range kinds() {
				if errors.Is(err, kind) != errors.Is(c.kind, kind) {
					t.Errorf("%d %s is %v, want %v", c.status, c.code, err, c.kind)
				}
			}
			if n := len(cloud.Calls("RunInstances")); n != 1 {
				t.Errorf("%d %s: %d attempts, want 1", c.status, c.code, n)
			}
		})
	}
}

// TestRefusalsReadAlike: the request id, which differs each time, is removed, whether or not the
// code is known.
func TestRefusalsReadAlike(t *testing.T) {
	for _, code := range []string{"UnauthorizedOperation", "NeverHeardOf"} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			cloud.FailNext("RunInstances", 2, awstest.Fault{Code: code, Status: 400, Message: "because"})
			_, one := p.Create(t.Context(), spec(t, 1))
			_, two := p.Create(t.Context(), spec(t, 1))
			if one == nil || two == nil || one.Error() != two.Error() {
				t.Errorf("%v\nand then\n%v", one, two)
			}
		})
	}
}

// TestNoWordOfAWS: an error of a proxy or of AWS's front end has no code. The outcome is unknown,
// unless access was forbidden.
func TestNoWordOfAWS(t *testing.T) {
	for status, kind := range map[int]error{
		400: nil, 401: provider.ErrUnauthorized, 403: provider.ErrUnauthorized, 404: nil, 408: nil, 413: nil, 429: provider.ErrThrottled,
		500: nil, 502: nil, 503: nil,
	} {
		for _, body := range []string{"", "<html><body>Please log in</body></html>", "no"} {
			synctest.Test(t, func(t *testing.T) {
				p := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				})), scope)
				_, err := p.Create(t.Context(), spec(t, 1))
				if err == nil || provider.Definite(err) != (kind != nil) || kind != nil && !errors.Is(err, kind) {
					t.Errorf("%d %q: %v, want %v", status, body, err, kind)
				}
			})
		}
	}
}

// slow is a temporary failure.
type slow struct{ error }

func (slow) Timeout() bool { return true }

// TestCredentialsThatAreLate: temporarily missing credentials are no definite error, which would
// fail an on-demand instance.
func TestCredentialsThatAreLate(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind error
	}{
		{fmt.Errorf("get metadata: %w", context.DeadlineExceeded), nil},
		{slow{errors.New("get metadata: no answer")}, nil},
		{fmt.Errorf("get metadata: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}), nil},
		{fmt.Errorf("get metadata: %w", io.EOF), nil},
		{errors.New("no role"), provider.ErrUnauthorized},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := openWith(t, serve(t, awstest.New(cloudConfig(t))), scope, keys{c.err})
			_, err := p.Create(t.Context(), spec(t, 1))
			if err == nil || errors.Is(err, provider.ErrUnauthorized) != (c.kind != nil) || provider.Definite(err) != (c.kind != nil) {
				t.Errorf("%v, want %v", err, c.kind)
			}
		})
	}
}

// TestExpiredKeys are renewed, and the refused call may be repeated.
func TestExpiredKeys(t *testing.T) {
	asked := 0
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = fmt.Fprintf(w, `{"AccessKeyId": "AKID%d", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}`, asked)
	}))
	defer source.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", source.URL)
	cloud := awstest.New(cloudConfig(t))
	cfg := aws.Default(scope, slog.New(slog.DiscardHandler))
	cfg.Region, cfg.HTTPClient = region, serve(t, cloud)
	p, err := aws.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cloud.FailNext("RunInstances", 1, awstest.Fault{Code: "ExpiredToken", Status: http.StatusBadRequest, Message: "over"})
	_, first := p.Create(t.Context(), spec(t, 1))
	_, second := p.Create(t.Context(), spec(t, 1))
	if first == nil || provider.Definite(first) || second != nil || asked != 2 {
		t.Errorf("%v, then %v; keys were asked for %d times, want 2", first, second, asked)
	}
}

// TestFakesOwnErrors: the same with the double's own errors.
func TestFakesOwnErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*awstest.Config)
		hand   func(*awstest.Cloud)
		kind   error
	}{
		"instances":  {func(cfg *awstest.Config) { cfg.InstanceLimit = 1 }, nil, provider.ErrQuota},
		"processors": {func(cfg *awstest.Config) { cfg.VCPULimit = 2 }, nil, provider.ErrQuota},
		"capacity":   {nil, func(c *awstest.Cloud) { c.SetCapacity("t3.small", large, 1) }, provider.ErrQuota},
		"calls": {func(cfg *awstest.Config) {
			cfg.Throttles = []awstest.Throttle{{Actions: []string{"RunInstances"}, PerSecond: 2, Burst: 1}}
		}, nil, provider.ErrThrottled},
		"region": {func(cfg *awstest.Config) { cfg.Region = "us-east-1" }, nil, provider.ErrUnauthorized},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, c.change)
			if c.hand != nil {
				c.hand(cloud)
			}
			_, first := p.Create(t.Context(), spec(t, 1))
			_, second := p.Create(t.Context(), spec(t, 2))
			if name != "region" && first != nil || !errors.Is(second, c.kind) {
				t.Errorf("%s: %v, then %v; want %v", name, first, second, c.kind)
			}
		})
	}
}

// TestUnauthorized names the missing action, which may differ from the one that was called.
func TestUnauthorized(t *testing.T) {
	for said, want := range map[string]string{
		"You are not authorized to perform this operation.": "ec2:RunInstances is not allowed",
		"You are not authorized to perform this operation. User: arn:aws:iam::1:user/a is not authorized to perform: iam:PassRole on resource: " +
			"x because no identity-based policy allows it. Encoded authorization failure message: aGVsbG8": "iam:PassRole is not allowed",
		"User: a is not authorized to perform: ec2:CreateTags on resource: x": "ec2:CreateTags is not allowed",
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			cloud.FailNext("RunInstances", 1, awstest.Fault{Code: "UnauthorizedOperation", Status: http.StatusForbidden, Message: said})
			_, err := p.Create(t.Context(), spec(t, 1))
			if !errors.Is(err, provider.ErrUnauthorized) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "aGVsbG8") {
				t.Errorf("%v; want that %s", err, want)
			}
		})
	}
}

// TestRefusalsRepeat: the same error always has the same text and kind.
func TestRefusalsRepeat(t *testing.T) {
	for code, kind := range map[string]error{
		"InvalidParameterValue": provider.ErrInvalid, "InstanceLimitExceeded": provider.ErrQuota,
		"UnauthorizedOperation":             provider.ErrUnauthorized,
		"InsufficientFreeAddressesInSubnet": provider.ErrSubnetFull, "RequestLimitExceeded": provider.ErrThrottled,
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			cloud.FailNext("RunInstances", 2, awstest.Fault{Code: code, Status: http.StatusBadRequest, Message: "because"})
			_, first := p.Create(t.Context(), spec(t, 1))
			_, second := p.Create(t.Context(), spec(t, 1))
			if first == nil || second == nil || first.Error() != second.Error() {
				t.Errorf("%s: first %q, then %q", code, first, second)
			}
			var refused smithy.APIError
			if !errors.Is(second, kind) || !errors.As(second, &refused) || refused.ErrorCode() != code {
				t.Errorf("%s: %v, want %v with the code", code, second, kind)
			}
			if !strings.Contains(second.Error(), "ec2:RunInstances") || !strings.Contains(second.Error(), code+": because") {
				t.Errorf("%s: %v; want the action, the code and the reason", code, second)
			}
		})
	}
}

// TestNoCredentials: nothing was sent, so nothing was created.
func TestNoCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := awstest.New(cloudConfig(t))
		p := openWith(t, serve(t, cloud), scope, keys{err: errors.New("the role is gone")})
		asked := 0
		ctx := provider.WithGuard(t.Context(), func(context.Context) error { asked++; return nil })
		_, createErr := p.Create(ctx, spec(t, 1))
		_, listErr := p.List(ctx)
		for name, err := range map[string]error{"create": createErr, "list": listErr} {
			if !errors.Is(err, provider.ErrUnauthorized) || !strings.Contains(err.Error(), "the role is gone") {
				t.Errorf("%s: %v, want ErrUnauthorized", name, err)
			}
		}
		if asked != 0 || len(cloud.Calls("")) != 0 {
			t.Errorf("the guard was asked %d times, before there were credentials; calls %v", asked, cloud.Calls(""))
		}
	})
}

// TestReadsAreRetried, unlike calls that change something.
func TestReadsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		vm := must(t, p, spec(t, 1))
		for _, fault := range []awstest.Fault{
			{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable}, {Code: "InternalError", Status: 500}, {Dropped: true},
		} {
			cloud.FailNext("DescribeInstances", 2, fault)
			if got, err := provider.GetOne(t.Context(), p, vm.Ref()); err != nil || got.Ref() != vm.Ref() {
				t.Errorf("get after two of %+v: %v", fault, err)
			}
			cloud.FailNext("TerminateInstances", 1, fault)
			before := len(cloud.Calls("TerminateInstances"))
			err := provider.DeleteOne(t.Context(), p, vm.Ref())
			if n := len(cloud.Calls("TerminateInstances")) - before; err == nil || n != 1 {
				t.Errorf("delete against %+v: %v after %d attempts, want an error after 1", fault, err, n)
			}
		}
		cloud.FailNext("DescribeInstances", 9, awstest.Fault{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable})
		if _, err := p.List(t.Context()); !errors.Is(err, provider.ErrThrottled) {
			t.Errorf("list while nothing comes through: %v", err)
		}
	})
}

// TestDeleteSplits: an instance that can't be deleted does not keep others of its batch alive.
func TestDeleteSplits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		var refs []provider.Ref
		for n := range 9 {
			refs = append(refs, must(t, p, spec(t, n)).Ref())
		}
		keep := spec(t, 100)
		refs = slices.Insert(refs, 4, provider.Ref{ID: keep.ID, ProviderID: cloud.AddMachine(large, keep.Tags, true)})
		for n, err := range p.Delete(t.Context(), refs) {
			if n == 4 != errors.Is(err, provider.ErrInvalid) || n != 4 && err != nil {
				t.Errorf("delete %d: %v", n, err)
			}
		}
		for _, m := range cloud.Machines() {
			if alive := m.State == "running"; alive != (m.ID == refs[4].ProviderID) {
				t.Errorf("%s is %s", m.ID, m.State)
			}
		}
	})
}

// TestDeleteThrottled: a batch that failed for all instances is not split.
func TestDeleteThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		refs := []provider.Ref{must(t, p, spec(t, 1)).Ref(), must(t, p, spec(t, 2)).Ref()}
		cloud.FailNext("TerminateInstances", 1, awstest.Fault{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable})
		for n, err := range p.Delete(t.Context(), refs) {
			if !errors.Is(err, provider.ErrThrottled) || !strings.Contains(err.Error(), refs[n].ProviderID) {
				t.Errorf("delete %d: %v", n, err)
			}
		}
		if n := len(cloud.Calls("TerminateInstances")); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}

// TestDeleteForgotten: an instance that EC2 has forgotten counts as deleted.
func TestDeleteForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		vm := must(t, p, spec(t, 1))
		cloud.FailNext("TerminateInstances", 1, awstest.Fault{Code: "InvalidInstanceID.NotFound", Status: http.StatusBadRequest})
		if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
}

// TestOptions are validated before a provider is opened.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		region  string
		options map[string]any
		path    string // empty: they are valid
	}{
		{"", nil, ""},
		{"us-gov-west-1", map[string]any{}, ""},
		{"Frankfurt", nil, "region"},
		{region, map[string]any{"zone": "eu-central-1a"}, "options.zone"},
	} {
		cfg, err := aws.Default(scope, nil).WithOptions(c.options)
		if err == nil {
			cfg.Region = c.region
			err = cfg.CheckOptions()
		}
		var fields provider.FieldErrors
		if c.path == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		} else if !errors.As(err, &fields) || len(fields) != 1 || fields[0].Path != c.path {
			t.Errorf("%+v: %v, want an error of %s", c, err, c.path)
		}
	}
}
