package aws_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nstance/nstance/pkg/dev/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/sigv4"
)

// good are keys that the clouds of these tests know.
var good = sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}

// ask sends a request that needs no signature.
func ask(t *testing.T, method, url, header, value string) (int, string) {
	t.Helper()
	return do(t, request(t, method, url, header, value))
}

// order sends a signed manual call.
func order(t *testing.T, method, url string) (int, string) {
	t.Helper()
	return do(t, sign(t, good, request(t, method, url, "", "")))
}

func request(t *testing.T, method, url, header, value string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	return r
}

func sign(t *testing.T, keys sdk.Credentials, r *http.Request) *http.Request {
	t.Helper()
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, sigv4.Sum(nil), "ec2", aws.Region, time.Now()); err != nil {
		t.Fatal(err)
	}
	return r
}

func do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

// TestPaths: metadata, manual calls and AWS's services are on one address.
func TestPaths(t *testing.T) {
	world := aws.CloudConfig()
	world.Boot, world.Lag = 0, 0
	cloud := awstest.New(world)
	server, metadata := serve(t, aws.Config{Cloud: cloud})
	id := cloud.AddMachine(aws.SubnetA, map[string]string{"who": "me"}, false)

	code, token := ask(t, http.MethodPut, metadata(id)+"/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	if code != http.StatusOK {
		t.Fatalf("token: %d", code)
	}
	if code, got := ask(t, http.MethodGet, metadata(id)+"/latest/meta-data/instance-id", "X-aws-ec2-metadata-token", token); got != id {
		t.Errorf("the machine is %q (%d), want %s", got, code, id)
	}
	if code, got := order(t, http.MethodGet, server+"/-/machines"); code != http.StatusOK || !strings.Contains(got, id) {
		t.Errorf("machines: %d, %s", code, got)
	}
	if code, got := order(t, http.MethodGet, server+"/-/interfaces"); code != http.StatusOK || !strings.Contains(got, "127.77.0.4") {
		t.Errorf("interfaces: %d, %s", code, got)
	}
	if code, _ := ask(t, http.MethodPost, server, "", ""); code < 400 || code > 499 {
		t.Errorf("a call without a form: %d", code)
	}
	by := func(what string) (int, string) {
		return order(t, http.MethodPost, server+"/-/machines/"+what)
	}
	for what, says := range map[string]string{
		id + "/paint": "want interrupt, kill, stop or hang", id + "/interrupt?after=soon": "want a duration", "i-1/kill": "i-1",
		id + "/interrupt": "none of spot",
	} {
		if code, got := by(what); code != http.StatusBadRequest || !strings.Contains(got, says) {
			t.Errorf("%s: %d %s, want %q", what, code, got, says)
		}
	}
	for _, what := range []string{"hang", "stop", "kill"} {
		if code, got := by(id + "/" + what); code != http.StatusNoContent {
			t.Errorf("%s: %d %s", what, code, got)
		}
	}
}

// TestMachinesRun: userdata runs once its machine is running, and is killed with the machine,
// together with its children.
func TestMachinesRun(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no scripts")
	}
	world := aws.CloudConfig()
	world.Boot, world.Shutdown = 50*time.Millisecond, 50*time.Millisecond
	cloud := awstest.New(world)
	root := t.TempDir()
	for _, name := range []string{"NSTANCE_SHARD", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"} {
		t.Setenv(name, "of this process")
	}
	_, metadata := serve(t, aws.Config{Cloud: cloud, Run: root})
	script := "#!/bin/sh\nenv > env\n(while :; do date > alive; sleep 0.05; done) &\nwait\n"
	id := cloud.BootMachine(aws.SubnetA, []byte(script))
	eventually(t, "it runs", func() error {
		_, err := os.Stat(filepath.Join(root, id, "alive"))
		return err
	})
	env, err := os.ReadFile(filepath.Join(root, id, "env"))
	if err != nil || !strings.Contains(string(env), metadata(id)) || strings.Contains(string(env), "of this process") {
		t.Errorf("its environment is %s, %v", env, err)
	}
	if err := cloud.Kill(id, "c", "m"); err != nil {
		t.Fatal(err)
	}
	alive := filepath.Join(root, id, "alive")
	eventually(t, "it has ended", func() error {
		_ = os.Remove(alive)
		time.Sleep(200 * time.Millisecond) // four times as long as a restart would take
		if _, err := os.Stat(alive); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it lives: %w", err)
		}
		return nil
	})
}

// serve serves until the test ends, and returns the address and a function for the URL of a
// machine's metadata.
func serve(t *testing.T, cfg aws.Config) (url string, metadata func(string) string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cfg.Logger = slog.New(slog.DiscardHandler)
	stand := aws.New(cfg)
	ended := make(chan error, 1)
	go func() { ended <- stand.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	url = "http://" + l.Addr().String()
	return url, func(id string) string {
		_, at := order(t, http.MethodGet, url+"/-/machines/"+id+"/metadata")
		return at
	}
}

func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if err = ask(); err == nil {
			return
		}
	}
	t.Fatalf("not so: %s: %v", what, err)
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := aws.Config{Cloud: awstest.New(aws.CloudConfig()), Logger: slog.New(slog.DiscardHandler)}
	if err := aws.Listen(t.Context(), l.Addr().String(), cfg); err == nil || !strings.Contains(err.Error(), "--addr") {
		t.Errorf("%v, want an error that names the flag", err)
	}
	if err := aws.Listen(t.Context(), "0.0.0.0:0", cfg); err == nil || !strings.Contains(err.Error(), "--serve-network") {
		t.Errorf("%v, want an error that names the flag", err)
	}
}
