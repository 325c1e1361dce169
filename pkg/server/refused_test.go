package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestRefusedUnread: an unauthorized caller is refused before any byte of a message has arrived.
func TestRefusedUnread(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		who := s.callers(p)
		for _, m := range methods() {
			var refused map[*pki.Keypair]codes.Code
			var addr string
			switch m.Parent().Name() {
			case "AgentService":
				addr = p.agentAddr()
				refused = map[*pki.Keypair]codes.Code{
					who.deleted: codes.Unauthenticated, who.operator: codes.PermissionDenied, who.server: codes.PermissionDenied,
				}
			case "OperatorService":
				addr = p.operatorAddr()
				refused = map[*pki.Keypair]codes.Code{
					who.deleted: codes.PermissionDenied, who.agent: codes.PermissionDenied, who.server: codes.PermissionDenied,
				}
			}
			for pair, want := range refused {
				method := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
				if err := unsent(within(t), s.dial(addr, pair), method); status.Code(err) != want {
					t.Errorf("%s answers %v, want %s", method, err, want)
				}
			}
		}
	})
}

// unsent makes a call and waits for its result without sending its message.
func unsent(ctx context.Context, conn *grpc.ClientConn, method string) error {
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

// TestRefusedNoncesLeaveLines: a forged nonce and a spent one are logged, without the nonce, and
// the latter with its machine.
func TestRefusedNoncesLeaveLines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		token := s.nonceOf(id)
		if _, err := p.registerWith(token, newKey(t)); err != nil {
			t.Fatal(err)
		}
		_, err := p.registerWith(token, newKey(t))
		refused(t, err, codes.PermissionDenied, "another key", string(id))
		forged := token[:strings.LastIndexByte(token, '.')] + "." + strings.Repeat("A", 86)
		_, err = p.registerWith(forged, newKey(t))
		refused(t, err, codes.PermissionDenied)
		_, err = p.registration().RegisterOperator(within(t), &nstancev1.RegisterOperatorRequest{Nonce: "x.y.z", PublicKey: "none"})
		refused(t, err, codes.PermissionDenied)

		log := fmt.Sprint(p.log)
		if n := p.log.count("refused a call"); n != 3 {
			t.Errorf("%d lines about refused calls, want 3", n)
		}
		for _, says := range []string{"RegisterAgent", "RegisterOperator", "from=127.0.0.1:", "caller=none",
			"with another key: instance " + string(id)} {
			if !strings.Contains(log, says) {
				t.Errorf("no line says %q", says)
			}
		}
		for _, secret := range strings.Split(token, ".") {
			if strings.Contains(log, secret) {
				t.Errorf("the log quotes the nonce: %q", secret)
			}
		}
	})
}
