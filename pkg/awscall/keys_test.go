package awscall_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
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
				c := awscall.New(awsclient.Session{Region: "r", Credentials: keys, HTTPClient: s}, awsclient.ParameterStore)
				call := func() error { return c.JSON(t.Context(), "X", "X", nil, &struct{}{}, awscall.Attempts{Once: once}) }
				if err := call(); once != awscall.Expired(err) || once != (err != nil) {
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

// silent are keys that never come.
type silent struct{}

func (silent) Retrieve(ctx context.Context) (awsclient.Keys, error) {
	<-ctx.Done()
	return awsclient.Keys{}, ctx.Err()
}

// TestNoKeysCome: the search for keys is part of an attempt, and ends with it.
func TestNoKeysCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{replies: []reply{{200, "{}"}}}
		c := awscall.New(awsclient.Session{Region: "r", Credentials: silent{}, HTTPClient: s}, awsclient.ParameterStore)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := c.JSON(ctx, "X", "X", nil, &struct{}{}, awscall.Attempts{Once: true})
		if !errors.Is(err, context.DeadlineExceeded) || !awscall.Refused(err) || time.Since(began) != 10*time.Second || len(s.asked) != 0 {
			t.Errorf("%v after %s and %d calls", err, time.Since(began), len(s.asked))
		}
	})
}

// TestThrottled: all the ways in which services say it.
func TestThrottled(t *testing.T) {
	for _, code := range []string{
		"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "EC2ThrottledException",
		"TooManyRequestsException", "RequestLimitExceeded", "SlowDown",
	} {
		_, err := call(&service{replies: []reply{{400, `{"__type":"` + code + `"}`}}}, awscall.Attempts{Once: true})
		if !awscall.Throttled(err) {
			t.Errorf("%s is none: %v", code, err)
		}
	}
}
