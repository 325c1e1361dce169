package main_test

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func (s *shard) ReceiveFiles(_ *nstancev1.ReceiveFilesRequest, stream nstancev1.AgentService_ReceiveFilesServer) error {
	if s.push == nil {
		return status.Error(codes.Unimplemented, "no files here")
	}
	for {
		select {
		case e := <-s.push:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *shard) KeyGenRequests(_ *nstancev1.KeyGenRequestsRequest, stream nstancev1.AgentService_KeyGenRequestsServer) error {
	if s.keys == nil {
		return status.Error(codes.Unimplemented, "no keys here")
	}
	if err := stream.Send(&nstancev1.KeyGenRequestsResponse{Keys: s.ask}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (s *shard) SubmitPublicKeys(_ context.Context, r *nstancev1.SubmitPublicKeysRequest) (*nstancev1.SubmitPublicKeysResponse, error) {
	s.keys <- r.GetPublicKeys()
	return &nstancev1.SubmitPublicKeysResponse{}, nil
}

// send sends a set of one file.
func (s *shard) send(hash, name, content string) {
	s.push <- &nstancev1.ReceiveFilesResponse{Event: &nstancev1.ReceiveFilesResponse_File{File: &nstancev1.File{Name: name,
		Content: []byte(content)}}}
	s.push <- &nstancev1.ReceiveFilesResponse{Event: &nstancev1.ReceiveFilesResponse_Commit{Commit: &nstancev1.FilesCommit{ConfigHash: hash,
		Names: []string{name}}}}
}

// TestProgramReceivesFiles has reports an hour apart, so that what comes sooner
// comes because of the files; and kills the program, which must know what it had.
func TestProgramReceivesFiles(t *testing.T) {
	path := build(t, "1.2.3")
	s, registration, agents := startShard(t)
	s.push, s.keys = make(chan *nstancev1.ReceiveFilesResponse), make(chan map[string]string, 10)
	s.ask = []*nstancev1.KeyRequest{{Name: "web", Algorithm: nstancev1.KeyAlgorithm_KEY_ALGORITHM_ECDSA_P256}}
	dir := t.TempDir()
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"cluster_id":"example","shard":"dev-1"}`))
	for name, content := range map[string]string{"ca.crt": string(pki.EncodeCertificate(s.ca.Certificate())), "nonce.jwt": "e30." + claims +
		".c2ln\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recv := filepath.Join(dir, "received")
	environment := []string{
		"NSTANCE_SERVER_REGISTRATION_ADDR=" + registration, "NSTANCE_SERVER_AGENT_ADDR=" + agents, "NSTANCE_INSTANCE_ID=" + instanceID,
		"NSTANCE_IDENTITY_DIR=" + dir, "NSTANCE_RECV_DIR=" + recv, "NSTANCE_KEYS_DIR=" + filepath.Join(dir, "keys"), "NSTANCE_RECV_MODE=0644",
		"NSTANCE_REPORT_INTERVAL=1h", "NSTANCE_PROVIDER=process",
	}
	start := func() *exec.Cmd {
		command := exec.Command(path)
		command.Env, command.Stderr = environment, os.Stderr
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = command.Process.Kill() }) // where the test ends early
		return command
	}
	command := start()
	if r := s.next(t); r.GetConfigHash() != "" || len(r.GetFiles()) != 0 {
		t.Errorf("the first report is %v", r)
	}
	began := time.Now()
	s.send("h1", "app.env", "A=1\n")
	if r := s.next(t); r.GetConfigHash() != "h1" || len(r.GetFiles()) != 1 ||
		r.GetFiles()[0].GetState() != nstancev1.FileState_FILE_STATE_PRESENT {
		t.Errorf("after the set: %v", r)
	}
	t.Logf("from the file to the report of it: %s", time.Since(began))
	s.send("h2", "app.env", "not an environment\n")
	if r := s.next(t); r.GetConfigHash() != "h1" || r.GetFiles()[0].GetState() != nstancev1.FileState_FILE_STATE_FAILED {
		t.Errorf("after the bad set: %v", r)
	}
	if content := must(os.ReadFile(filepath.Join(recv, "app.env")))(t); string(content) != "A=1\n" {
		t.Errorf("the file is %q", content)
	}
	first := <-s.keys
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()

	command = start()
	if r := s.next(t); r.GetConfigHash() != "h1" || len(r.GetFiles()) != 1 {
		t.Errorf("after the restart: %v", r)
	}
	if again := <-s.keys; first["web"] == "" || again["web"] != first["web"] {
		t.Errorf("the keys are %v and %v", first, again)
	}
	// The status is written beside the report, and may be a moment behind it.
	text, end := "", time.Now().Add(patience)
	for !strings.Contains(text, "app.env present") || !strings.Contains(text, "h1") {
		if time.Now().After(end) {
			t.Errorf("status:\n%s", text)
			break
		}
		look := exec.Command(path, "status")
		look.Env = environment
		text = string(must(look.Output())(t))
	}
	t.Logf("resident: %s", resident(command.Process.Pid))
	_ = command.Process.Kill()
	_ = command.Wait()
}
