package awsclient_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestExpired: keys that a service refuses as too old are not used again.
func TestExpired(t *testing.T) {
	for _, code := range []string{"ExpiredToken", "ExpiredTokenException", "RequestExpired"} {
		for _, once := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				keys := awsclient.Keep(func(context.Context) (awsclient.Keys, error) {
					n++
					return awsclient.Keys{AccessKeyID: fmt.Sprint("K", n), SecretAccessKey: "secret"}, nil
				})
				s := &service{replies: []reply{{400, `{"__type":"` + code + `"}`}, {200, "{}"}}}
				cfg := brief(t, awsclient.ParameterStore, keys, s)
				call := func() error { return read(t, cfg, once) }
				if err := call(); once != awsclient.Expired(err) || once != (err != nil) {
					t.Errorf("%s, once is %t: %v", code, once, err)
				}
				if err := call(); err != nil {
					t.Errorf("%s, once is %t: again: %v", code, once, err)
				}
				for at, r := range s.asked {
					if want := fmt.Sprint("Credential=K", min(at+1, 2), "/"); !strings.Contains(r.Header.Get("Authorization"), want) {
						t.Errorf("%s, attempt %d: %s, want %s", code, at, r.Header.Get("Authorization"), want)
					}
				}
			})
		}
	}
}

// silent are keys that never arrive.
type silent struct{}

func (silent) Retrieve(ctx context.Context) (awsclient.Keys, error) {
	<-ctx.Done()
	return awsclient.Keys{}, ctx.Err()
}

// TestNoKeysCome: the retrieval of keys is part of an attempt, and ends with it.
func TestNoKeysCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{replies: []reply{{200, "{}"}}}
		began := time.Now()
		err := read(t, brief(t, awsclient.ParameterStore, silent{}, s), true)
		if !errors.Is(err, context.DeadlineExceeded) || !awsclient.NoEffect(err) || time.Since(began) != 10*time.Second || len(s.asked) != 0 {
			t.Errorf("%v after %s and %d calls", err, time.Since(began), len(s.asked))
		}
	})
}

// TestThrottled: all codes with which services report throttling.
func TestThrottled(t *testing.T) {
	for _, code := range []string{
		"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "EC2ThrottledException",
		"TooManyRequestsException", "RequestLimitExceeded", "SlowDown",
	} {
		_, err := answered(t, true, reply{400, `{"__type":"` + code + `"}`})
		if !awsclient.Throttled(err) {
			t.Errorf("%s is none: %v", code, err)
		}
	}
}

// TestRole: calls are signed with the machine's role's keys while those are valid, whatever its
// metadata service does, and nothing is sent without keys.
func TestRole(t *testing.T) {
	for _, variable := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_DISABLED",
	} {
		t.Setenv(variable, "")
	}
	for name, fault := range map[string]awstest.Fault{"503": {Status: 503}, "hangs": {Delay: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			cloud := awstest.New(awstest.Config{Region: region, Role: "server", RoleLife: time.Hour})
			cloud.Parameters.Put("/a", "b")
			cfg := awsclienttest.Serve(t, cloud, region)
			cfg.Credentials = nil
			cfg.Local = awsclienttest.Serve(t, cloud.Metadata(cloud.AddMachine("subnet-0000000a", nil, false)), region).HTTPClient
			session, err := cfg.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			calls, err := session.Brief(awsclient.ParameterStore)
			if err != nil {
				t.Fatal(err)
			}
			call := func() error { return read(t, calls, false) }
			if err := call(); err != nil {
				t.Fatal(err)
			}
			cloud.FailNext(awstest.MetadataService, 10000, fault)
			for began := time.Now(); time.Since(began) < 59*time.Minute; time.Sleep(time.Minute) {
				before := time.Now()
				if err := call(); err != nil || time.Since(before) != 0 {
					t.Errorf("%s, after %s: %v in %s", name, time.Since(began), err, time.Since(before))
				}
			}
			time.Sleep(time.Hour)
			before, sent := time.Now(), len(cloud.Calls(""))
			var none awsclient.CredentialsError
			if err := call(); !errors.As(err, &none) || time.Since(before) > 10*time.Second || len(cloud.Calls("")) != sent {
				t.Errorf("%s, when they have expired: %v in %s", name, err, time.Since(before))
			}
			cloud.ClearFaults()
			time.Sleep(time.Minute)
			if err := call(); err != nil {
				t.Errorf("%s, afterwards: %v", name, err)
			}
		})
	}
}
