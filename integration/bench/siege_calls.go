package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

const (
	floodConnections = 2  // of a source
	floodStreams     = 32 // of a connection
	floodMessage     = 4<<20 - 1
	floodStep        = 64 << 10
	floodPause       = 100 * time.Millisecond
	streamOpeners    = 4
	forgers          = 4
)

// identity is the identity of an agent.
func (a *attackers) identity(id fleet.InstanceID) (pki.Endpoint, error) {
	pair, err := issue(a.ca.IssueAgent, id)
	if err != nil {
		return pki.Endpoint{}, err
	}
	return pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(pki.NewBundle(a.ca.Certificate()), pair), Now: time.Now}, nil
}

// floods opens calls whose messages of 4 MiB arrive slowly and never end.
func (a *attackers) floods(ctx context.Context, all *sync.WaitGroup, from *net.Dialer, id fleet.InstanceID, addr, method string) error {
	endpoint, err := a.identity(id)
	if err != nil {
		return err
	}
	for range floodConnections {
		transport := &http.Transport{
			TLSClientConfig: endpoint.Client(loopback, shardID), ForceAttemptHTTP2: true, DialContext: from.DialContext,
		}
		for range floodStreams {
			all.Go(func() {
				a.again(ctx, func(ctx context.Context) error { return sendMessage(ctx, transport, "https://"+addr+method) })
			})
		}
		context.AfterFunc(ctx, transport.CloseIdleConnections)
	}
	return nil
}

// sendMessage makes one call, which the server ends.
func sendMessage(ctx context.Context, transport *http.Transport, url string) error {
	body, message := io.Pipe()
	defer func() { _ = body.Close() }() // always nil
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	go func() {
		head := binary.BigEndian.AppendUint32([]byte{0}, floodMessage)
		_, err := message.Write(head)
		for sent := 0; err == nil && sent+floodStep < floodMessage; sent += floodStep {
			if _, err = message.Write(make([]byte, floodStep)); err == nil {
				err = retry.Wait(ctx, floodPause)
			}
		}
	}()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil {
		err = errClosed
	}
	return err
}

// opensStreams opens and closes streams with the identity of one of the shard's agents.
func (a *attackers) opensStreams(ctx context.Context, all *sync.WaitGroup, from *net.Dialer, addr string) error {
	endpoint, err := a.identity(a.ownID())
	if err != nil {
		return err
	}
	conn, err := dialGRPC(endpoint, from, addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	client := nstancev1.NewAgentServiceClient(conn)
	for range streamOpeners {
		all.Go(func() {
			a.again(ctx, func(ctx context.Context) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				_, err := client.KeyGenRequests(ctx, &nstancev1.KeyGenRequestsRequest{})
				return err
			})
		})
	}
	return nil
}

// forges sends nonces that are signed with another key.
func (a *attackers) forges(ctx context.Context, all *sync.WaitGroup, from *net.Dialer, addr string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	id := string(a.ownID())
	token, err := nonce.Mint(key, nonce.Claims{
		Kind: nonce.KindAgent, Subject: id, ClusterID: clusterID, Tenant: fleet.DefaultTenant, Shard: shardID,
		ID: id, IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(time.Hour),
	})
	if err != nil {
		return err
	}
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		return err
	}
	endpoint := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(pki.NewBundle(a.ca.Certificate()), nil), Now: time.Now}
	conn, err := dialGRPC(endpoint, from, addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	client := nstancev1.NewRegistrationServiceClient(conn)
	for range forgers {
		all.Go(func() {
			a.again(ctx, func(ctx context.Context) error {
				_, err := client.RegisterAgent(ctx, &nstancev1.RegisterAgentRequest{Nonce: token, PublicKey: string(public)})
				if status.Code(err) == codes.PermissionDenied {
					return nil // the next one follows at once
				}
				return err
			})
		})
	}
	return nil
}

func dialGRPC(endpoint pki.Endpoint, from *net.Dialer, addr string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(credentials.NewTLS(endpoint.Client(loopback, shardID))),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return from.DialContext(ctx, "tcp", addr) }))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}
