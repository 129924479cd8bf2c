"""What was spent: accounts, charges committed before release, and the hash chain that lets an outsider check them."""

from hush.ledger.account import Account
from hush.ledger.chain import Row
from hush.ledger.ledger import Ledger, Verified
from hush.ledger.reservation import Reservation

__all__ = ["Account", "Ledger", "Reservation", "Row", "Verified"]
